"""Further orders for a solver's process: questions that bring the code that answers them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

T_co = TypeVar("T_co", covariant=True)


class Aside(ABC, Generic[T_co]):
    """An order that any process with loaded solvers can carry out, and whose answer is a T; it is pickled on the way.

    A failure is part of its answer, because an exception would end the process.
    """

    __slots__ = ()

    @abstractmethod
    def answered(self) -> T_co:
        """Returns the answer."""
