"""Other orders for a warm process: questions that carry their own answering code."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Aside(ABC):
    """An order that any process with the solvers' loops ready can carry out; it is pickled on its way.

    A failure is part of its answer: an exception would end the process.
    """

    __slots__ = ()

    @abstractmethod
    def answered(self) -> object:
        """Its answer."""
