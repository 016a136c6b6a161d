"""Profiling campaigns: what to measure next of a model on a GPU, and the Profile that the measurements make."""
