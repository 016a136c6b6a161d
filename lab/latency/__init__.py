"""The exact chain of the batch server, by which the tables of solvers/latency are made and checked."""
