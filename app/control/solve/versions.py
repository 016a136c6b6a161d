"""Who solved it: what a plan's steps depend on, beside the problem, the seed and the work."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

COUNTED = ("gpuwright", "numpy", "numba", "scipy", "highspy", "ortools")


@cache
def versions() -> Mapping[str, str]:
    """By name: ours, Python's, and those of the libraries that plans are found with."""
    return {"python": f"{sys.version_info.major}.{sys.version_info.minor}"} | {name: _version(name) for name in COUNTED}


def other_versions(recorded: Mapping[str, str]) -> tuple[str, ...]:
    """What is not here as it was there, each by name: the same steps may lead elsewhere."""
    here = versions()
    return tuple(
        f"{name} is {here.get(name, 'not counted')} here and was {recorded.get(name, 'not recorded')}"
        for name in sorted(here.keys() | recorded.keys())
        if here.get(name) != recorded.get(name)
    )


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
