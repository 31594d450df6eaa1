"""Bytes to requests and responses to bytes, with limits of size and time, and the one form of errors."""
