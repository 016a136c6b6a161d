"""Campaigns that measure a model beside neighbours: which meetings are possible, and which is measured next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agents.contract.campaigns import CopySetting, MeasuredSetting, MetCopy
from solvers.interference import Neighbour, SharedRun, SlowdownObservation
from solvers.interference.meetings import Guest, Meeting, next_meeting

TRIES = 2  # of a meeting, before it counts as impossible


def choose_meeting(
    settings: Sequence[CopySetting],
    names: Sequence[str],
    measured: Sequence[MeasuredSetting],
    failed: Iterable[CopySetting],
    accuracy: float,
    most: int,
) -> CopySetting | None:
    """Returns the meeting to measure next; None once slowdowns are foreseen to `accuracy`, or nothing is left.

    `names` are the measured model and its neighbours. A meeting that failed twice is given up.
    """
    given_up = {setting for setting, times in Counter(failed).items() if times >= TRIES}
    by_meeting = {_meeting(setting, names): setting for setting in settings if setting not in given_up}
    held = [_meeting(found.setting, names) for found in measured]
    chosen = next_meeting(list(by_meeting), held, slowdowns(measured), accuracy, most)
    return by_meeting[chosen] if chosen else None


def slowdowns(measured: Sequence[MeasuredSetting]) -> list[SlowdownObservation]:
    """Returns what each copy of each meeting felt."""
    return [
        SlowdownObservation(
            SharedRun(
                name_of(copy),
                round(copy.sm_percent),
                tuple(
                    Neighbour(name_of(other), round(other.sm_percent))
                    for number, other in enumerate(found.met)
                    if number != place
                ),
            ),
            copy.beside_ms / copy.alone_ms,
        )
        for found in measured
        for place, copy in enumerate(found.met)
    ]


def name_of(copy: MetCopy) -> str:
    return f"{copy.model}/{copy.variant}"


def _meeting(setting: CopySetting, names: Sequence[str]) -> Meeting:
    mine = Guest(names[0], round(setting.sm_percent), setting.batch)
    others = (Guest(names[1 + one.number], round(one.sm_percent), one.batch) for one in setting.beside)
    return Meeting((mine, *others))
