"""The clock that every part of a simulation uses; it moves only when advanced."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

BEGAN = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)


class Clock:
    """Virtual time, as a date and as seconds since it began."""

    def __init__(self, began: datetime = BEGAN) -> None:
        self.began = began
        self.seconds = 0.0

    def now(self) -> datetime:
        return self.began + timedelta(seconds=self.seconds)

    def advance(self, seconds: float) -> None:
        if seconds < 0:
            raise ValueError(f"time cannot advance by {seconds:g} s; it must be 0 or more")
        self.seconds += seconds
