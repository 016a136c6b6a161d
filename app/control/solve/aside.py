"""What else a warm process can be asked beside plans: questions that know how to answer themselves."""

from __future__ import annotations

from abc import ABC, abstractmethod


class Aside(ABC):
    """An order that any process with the solvers' loops ready can carry out; it is pickled on its way.

    What goes wrong in it is part of its answer: an exception would end the process.
    """

    __slots__ = ()

    @abstractmethod
    def answered(self) -> object:
        """Its answer."""
