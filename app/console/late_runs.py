"""Finds since when a service has been late: the present run of minutes in which too few answers kept its SLO. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.store.fleet.late_minutes import AnsweredSpan

CALM = timedelta(minutes=5)  # in time for so long ends a run


@dataclass(frozen=True, slots=True)
class LateRun:
    """A time in which a service was late, with no five minutes in which it kept its SLO all along."""

    begins: datetime
    ends: datetime  # of its last late minute
    is_over: bool


def find_late_run(spans: Iterable[AnsweredSpan], percentile: float) -> LateRun | None:
    """Returns the last run of late minutes, from spans of one service, the oldest first; None without a late one."""
    found: LateRun | None = None
    last: datetime | None = None
    for span in spans:
        last = span.begins + span.length
        if span.attained * 100 >= percentile:
            continue
        goes_on = found is not None and span.begins - found.ends < CALM
        found = LateRun(found.begins if found and goes_on else span.begins, last, False)
    if found is None or last is None or last - found.ends < CALM:
        return found
    return LateRun(found.begins, found.ends, True)
