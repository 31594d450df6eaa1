"""Experiments in memory: what they are created with, what the log leads to, and the proof that it does."""
