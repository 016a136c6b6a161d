"""What our modules import only where they use it, imported once for all tests of a run."""

from __future__ import annotations

import sys
from importlib import import_module

MODULES = (
    "scipy.interpolate",
    "scipy.optimize",
    "scipy.special",
    "ortools.sat.python.cp_model",
    "cvxpy",
    "solvers.planning.judge.attainment",
    "solvers.planning.replan.match",
)


def load() -> None:
    """Loads them and the solvers' loops if tests use solvers, so that the first test that needs one pays for none."""
    if compiled := sys.modules.get("solvers.compiled"):
        for name in MODULES:
            import_module(name)
        compiled.read_all(waits=False)
