"""How much may be looked at for the reasons of a service: steps, which are the same on any machine."""

from __future__ import annotations


class SpentError(Exception):
    """The steps allowed are spent; what is not found yet stays unknown, and is said to be."""


class Meter:
    """Counts steps. One is a shape looked at on a GPU; what takes longer counts for more."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.steps = 0

    def spend(self, steps: int) -> None:
        """Count these; raises once more are spent than are allowed."""
        self.steps += steps
        if self.most is not None and self.steps > self.most:
            raise SpentError
