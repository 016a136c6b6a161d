"""Measures the CPU seconds of each test with all that it starts, and judges them by how quick the machine is now."""
