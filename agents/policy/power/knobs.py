"""A knob that the plan sets and the node may move: its value, the reason, and when it may return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from agents.contract.assignments import Frame
from agents.contract.reports import Excursion

OVER_CAP = "over_cap"
OVER_SLO = "over_slo"


@dataclass(frozen=True, slots=True)
class Knob:
    """A clock in MHz, or a batch."""

    value: int
    planned: int
    lowest: int
    highest: int
    reason: str = ""  # over_cap, over_slo; empty at its planned value
    since: datetime | None = None  # when it left its planned value
    age: int = 0  # periods since it moved
    wait: int = 0  # calm periods needed before it may return
    was_return: bool = False  # its last move was a return


def knob_of_frame(frame: Frame, steps: Sequence[int]) -> Knob:
    """Returns a knob at its planned value, or at the nearest of `steps` if only those exist."""
    inside = [step for step in steps if frame.min <= step <= frame.max]
    if steps:
        near = min(inside or steps, key=lambda step: (abs(step - frame.planned), step))
        return Knob(near, near, min(inside, default=near), max(inside, default=near))
    lowest, highest = max(1, round(frame.min)), max(1, round(frame.max))
    planned = min(max(round(frame.planned), lowest), highest)
    return Knob(planned, planned, lowest, highest)


def age_knob(before: Knob | None, frame: Frame, steps: Sequence[int] = ()) -> Knob:
    """Returns the knob one period older; a new plan resets it to the planned value."""
    fresh = knob_of_frame(frame, steps)
    if before is None or (before.planned, before.lowest, before.highest) != (
        fresh.planned,
        fresh.lowest,
        fresh.highest,
    ):
        return fresh
    return replace(before, age=before.age + 1)


def force_knob(knob: Knob, value: int, reason: str, at: datetime, calm_periods: int, longest: int) -> Knob:
    """Returns the knob moved because a limit is broken. A return that did not last doubles the wait for the next."""
    wait = knob.wait or calm_periods
    if knob.was_return:
        wait = min(2 * wait, longest) if knob.age <= 4 * wait else calm_periods
    home = value == knob.planned
    return replace(
        knob, value=value, reason="" if home else reason, since=None if home else knob.since or at, age=0, wait=wait,
        was_return=False,
    )  # fmt: skip


def return_knob(knob: Knob, value: int) -> Knob:
    """Returns the knob moved towards its planned value, because both limits hold."""
    home = value == knob.planned
    return replace(
        knob,
        value=value,
        reason="" if home else knob.reason,
        since=None if home else knob.since,
        age=0,
        was_return=True,
    )


def excursion(knob: Knob, name: str, gpu: int, instance: str = "") -> Excursion | None:
    """Returns the report of a knob that is away from its planned value."""
    if knob.value == knob.planned or knob.since is None:
        return None
    return Excursion(name, gpu, knob.planned, knob.value, knob.reason, knob.since, instance)
