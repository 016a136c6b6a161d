"""Benchmarks: each measures one promise on this machine and prints one JSON object."""

from __future__ import annotations

from typing import NamedTuple


class Benchmark(NamedTuple):
    """A benchmark: the module that measures it, what it measures, and the extra that it needs."""

    module: str
    about: str
    extra: str = "solvers"
