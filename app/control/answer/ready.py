"""Readies the process that answers questions: what the first one would wait for is loaded before it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from app.control.solve.aside import Aside

NEEDED = ("app.control.answer.explain.question", "app.control.answer.whatif.question", "scipy.optimize")


@dataclass(frozen=True, slots=True)
class GetReady(Aside):
    """The order to load what explanations and what-ifs need."""

    def answered(self) -> tuple[str, ...]:
        """Returns the modules that are loaded by now; loops that are not compiled yet wait for a question."""
        from solvers.compiled import WAITING, is_cached, read_all  # the server that gives the order has no compiler

        found = tuple(import_module(name).__name__ for name in NEEDED)
        if all(is_cached(loop) for loop, _ in WAITING):
            read_all(waits=False)
        return found
