"""Measures the CPU seconds of each test with all that it starts, and judges them in units of a loop timed meanwhile."""
