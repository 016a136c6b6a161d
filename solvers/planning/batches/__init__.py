"""Batches: bounded sets of moves that make a running plan cheaper, found by trying groups of its GPUs.

`solvers.planning.batches.find` has the functions to call; import them from there, so that reading a batch stays cheap.
"""
