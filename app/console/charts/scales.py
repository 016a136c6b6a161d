"""Axes: round numbers over a range of values, and round times over a range of time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from functools import lru_cache

MOST_VALUE_TICKS = 5
MOST_TIME_TICKS = 7
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
LETTERS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
MINUTES = (10, 15, 30, 60, 120, 180, 240, 360, 720)  # between marks of one day
DAYS = (1, 2, 5, 7)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class ValueAxis:
    """An axis from `low` to `high` with marks at round values."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def place(self, value: float) -> float:
        """Returns where a value is: 0 at the bottom, 1 at the top."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))

    def label(self, tick: float) -> str:
        """Returns a mark's number, with as many digits as its neighbours need."""
        return _short(tick, max(abs(self.low), abs(self.high)), self.ticks[1] - self.ticks[0])


def value_axis(values: Sequence[float], floor: float | None, top: float | None) -> ValueAxis:
    """Returns an axis that contains all values; it begins at `floor`, and ends no higher than `top`, if they are given.

    Without values it goes from 0 to 1.
    """
    low = min(values, default=0.0) if floor is None else min([floor, *values])
    high = max(values, default=1.0)
    high = high if top is None else max(top, high)
    if not high > low:
        high = low + (abs(low) or 1.0)
        if top is not None and high > top >= low:
            low, high = top - (abs(top) or 1.0) * 0.01, top
    step = _step((high - low) / MOST_VALUE_TICKS)
    first = math.floor(low / step + 1e-9)
    last = math.ceil(high / step - 1e-9)
    ticks = tuple(step * at for at in range(first, last + 1))
    return ValueAxis(ticks[0], ticks[-1], ticks)


@lru_cache(maxsize=100)
def time_ticks(begins: datetime, ends: datetime, zone: tzinfo) -> tuple[tuple[datetime, str], ...]:
    """Returns marks at round times of a zone, with their words: 14:00 within days, else 23 Nov."""
    length = ends - begins
    for minutes in MINUTES:
        if length <= timedelta(minutes=minutes) * MOST_TIME_TICKS:
            return tuple(
                (at, f"{local:%H:%M}") for at, local in _grid(begins, ends, zone, 5 if minutes < 60 else 15)
                if (local.hour * 60 + local.minute) % minutes == 0
            )  # fmt: skip
    days = next((count for count in DAYS if length <= timedelta(days=count) * MOST_TIME_TICKS), DAYS[-1])
    first = begins.astimezone(zone).date()
    midnights = [datetime.combine(first + timedelta(days=at), time(), zone) for at in range(length.days + 2)]
    return tuple((at, f"{at.day} {at:%b}") for at in midnights if begins <= at <= ends and at.toordinal() % days == 0)


def _grid(begins: datetime, ends: datetime, zone: tzinfo, minutes: int) -> Iterator[tuple[datetime, datetime]]:
    """Yields every few minutes with the time of the zone; the hours of every zone begin on a quarter of an hour."""
    each = timedelta(minutes=minutes)
    at = EPOCH - (EPOCH - begins) // each * each
    while at <= ends:
        yield at, at.astimezone(zone)
        at += each


def _step(least: float) -> float:
    """Returns the smallest round number of at least this size."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(each * power for each in ROUND if each * power >= least * (1 - 1e-9))


def _short(value: float, size: float, step: float) -> str:
    """Returns 1k for 1000 on an axis of this size with these steps; beyond all letters 1e+20."""
    if size >= 1e15 or size < 1e-4:
        return f"{value:.0e}" if value else "0"
    unit, letter = next((known for known in LETTERS if size >= 10 * known[0] or step >= known[0]), (1.0, ""))
    return f"{value / unit:.{_digits(step / unit)}f}{letter}" if value else "0"


def _digits(step: float) -> int:
    """Returns the decimals that tell neighbouring marks apart."""
    return next((digits for digits in range(7) if abs(round(step, digits) - step) < step * 1e-6), 6)
