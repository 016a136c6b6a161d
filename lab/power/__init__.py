"""Morak's power testbed: a GPU in a few equations, the law as printed, and runs of either law on it."""
