"""The versions that a plan's steps depend on, besides the problem, the seed and the work."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version

PROBLEM_FORM = "2"  # raised when problems describe the same fleet differently: 2 has the GPU indexes of nodes
COUNTED = ("gpuwright", "numpy", "numba", "scipy", "highspy", "ortools")


@cache
def versions() -> Mapping[str, str]:
    """Returns by name the versions of Python, the form of problems, this package and the solvers' libraries."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"python": python, "problem": PROBLEM_FORM} | {name: _version(name) for name in COUNTED}


def other_versions(recorded: Mapping[str, str]) -> tuple[str, ...]:
    """Names the versions that differ from the recorded ones: with them the same steps may lead elsewhere."""
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
