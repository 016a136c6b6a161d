"""Readies the process that answers questions: what the first one would wait for is loaded before it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from app.control.solve.aside import Aside

NEEDED = ("app.control.answer.explain.question", "app.control.answer.whatif.question", "scipy.optimize")


def import_needed() -> tuple[str, ...]:
    """Imports what questions are made of and answered with, and returns the names of these modules."""
    return tuple(import_module(name).__name__ for name in NEEDED)


@dataclass(frozen=True, slots=True)
class GetReady(Aside):
    """The order to load what explanations and what-ifs need."""

    def answered(self) -> tuple[str, ...]:
        """Returns the modules that are loaded by now; loops that are not compiled yet wait for a question."""
        from solvers.compiled import are_compiled, read_all  # the server that gives the order has no compiler

        found = import_needed()
        if are_compiled():
            read_all(waits=False)
        return found
