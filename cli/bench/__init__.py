"""Benchmarks: each measures one promise on this machine and prints one JSON object."""
