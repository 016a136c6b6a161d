"""The ranges of time that charts show, each in steps, so that a chart has little more than 100 points."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TimeRange:
    """A range of time up to now. Loads are kept by the hour after some hours: they have longer steps."""

    name: str  # in the address
    words: str
    length: timedelta
    step: timedelta
    load_step: timedelta
    oldest: datetime | None = None  # before it there is nothing to show

    def begins(self, now: datetime, step: timedelta) -> list[datetime]:
        """Returns the beginning of each step from the oldest that there is, but of a few; the last one contains now."""
        last = EPOCH + (now - EPOCH) // step * step
        steps = self.length // step
        if self.oldest is not None:
            steps = min(steps, max(LEAST_STEPS, -((self.oldest - last) // step)))
        return [last - step * back for back in range(steps, -1, -1)]


MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAY = TimeRange("24h", "24 hours", 24 * HOUR, 15 * MINUTE, HOUR)
HOUR_RANGE = TimeRange("1h", "hour", HOUR, MINUTE, MINUTE)
LEAST_STEPS = 10  # fewer are no chart
YOUNG = 3 * HOUR  # a fleet of which a day's charts would show a dot
RANGES = (
    HOUR_RANGE,
    DAY,
    TimeRange("7d", "7 days", 168 * HOUR, 2 * HOUR, 2 * HOUR),
    TimeRange("30d", "30 days", 720 * HOUR, 6 * HOUR, 6 * HOUR),
)


def read_range(name: str) -> str:
    """Returns the name, where a range has it; empty for any other."""
    return name if any(known.name == name for known in RANGES) else ""


def choose_range(name: str, oldest: datetime | None, now: datetime) -> TimeRange:
    """Returns the range of this name; without one a day, or an hour for a fleet that is not much older.

    It begins with the first plan, where that was later.
    """
    usual = HOUR_RANGE if oldest is not None and now - oldest < YOUNG else DAY
    span = next((known for known in RANGES if known.name == name), usual)
    if oldest is None or now - oldest >= span.length:
        return span
    return replace(span, words=f"{span.words}, since the first plan", oldest=oldest)
