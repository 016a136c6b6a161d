"""Simulated fleets: in virtual time for tests and what-ifs, in real time for `gpuwright up`."""
