"""Experiments as values, the paper's among them; running them; what they show."""
