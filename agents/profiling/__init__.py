"""Measures how long a batch of a model takes, and what memory and power it needs, on a real copy."""
