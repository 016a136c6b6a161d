"""Further orders for a solver's process: questions that bring the code that answers them."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Aside(ABC):
    """An order that any process with loaded solvers can carry out; it is pickled on the way.

    A failure is part of its answer, because an exception would end the process.
    """

    __slots__ = ()

    @abstractmethod
    def answered(self) -> object:
        """Returns the answer."""
