"""Figures of logs."""
