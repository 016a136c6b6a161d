"""Loads the solvers when a request first needs them, and refuses it where they are not installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from app.problem import HttpProblem

T = TypeVar("T")
OURS = {"app", "agents", "solvers"}


def call_solvers(fn: Callable[[], T]) -> T:
    """Returns what `fn` returns; 503 where a module that it imports is not installed."""
    try:
        return fn()
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in OURS:
            raise
        detail = f"this server has no solvers, which its extra planner installs: {error.name} is missing"
        raise HttpProblem("unavailable", detail) from None
