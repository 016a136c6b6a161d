"""Remembers when the control plane last answered, and when that is too long ago."""

from __future__ import annotations

from collections.abc import Callable

CONTACT_SECONDS = 60.0  # without an answer for this long, the assignment may be outdated


class Contact:
    """The agent's contact with the control plane. Before the first answer there is none."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._answered_at = float("-inf")

    def note_answer(self) -> None:
        self._answered_at = self._clock()

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last answer; infinite before the first."""
        return self._clock() - self._answered_at

    @property
    def is_lost(self) -> bool:
        return self.silent_seconds > CONTACT_SECONDS
