"""What needs the solvers: refused in plain words where they are not installed, loaded when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.problem import HttpProblem

T = TypeVar("T")
OURS = {"app", "agents", "solvers"}


def with_solvers(fn: Callable[[], T]) -> T:
    """What `fn` gives; 503 where a module that it imports is not installed."""
    try:
        return fn()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        told = f"this server is installed without the solvers (pip install 'gpuwright[planner]'): no {error.name}"
        raise HttpProblem("unavailable", told) from None
