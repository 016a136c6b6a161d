"""The joint problem: how many instances of each service run, where, and in which shape, at the lowest cost.

`solvers.planning.solve.solve` is the one function; it is imported from there, so that reading a problem stays cheap.
"""
