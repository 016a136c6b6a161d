"""Solves the joint problem: how many instances of each service run, where, and in which shape, at the lowest cost.

`solvers.planning.solve.solve` is the function to call; import it from there, so that reading a problem stays cheap.
"""
