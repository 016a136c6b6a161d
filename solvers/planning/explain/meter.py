"""Limits the search for the reasons of a service by steps, which are the same on any machine."""

from __future__ import annotations


class SpentError(Exception):
    """The steps allowed are spent; what is not found by then is reported as unknown."""


class Meter:
    """Counts steps. A shape looked at on a GPU is one step; what takes longer counts for more."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.steps = 0

    def spend(self, steps: int) -> None:
        """Counts steps; raises SpentError once more are spent than are allowed."""
        self.steps += steps
        if self.most is not None and self.steps > self.most:
            raise SpentError
