"""Campaigns that measure a model beside neighbours: which shared settings are possible, and which is measured next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agents.contract.campaigns import CopySetting, MeasuredSetting, SharedCopyTimes
from solvers.interference.next_setting import SharedCopy, SharedMeasurement, SharedSetting, next_shared_setting
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

TRIES = 2  # of a setting, before it counts as impossible


def choose_neighbour_setting(
    settings: Sequence[CopySetting],
    names: Sequence[str],
    measured: Sequence[MeasuredSetting],
    failed: Iterable[CopySetting],
    accuracy: float,
    most: int,
) -> CopySetting | None:
    """Returns the setting to measure next; None once slowdowns are foreseen to `accuracy`, or nothing is left.

    `names` are the measured model and its neighbours. A setting that failed twice is given up.
    """
    given_up = {setting for setting, times in Counter(failed).items() if times >= TRIES}
    by_shared = {_share_setting(setting, names): setting for setting in settings if setting not in given_up}
    done = [SharedMeasurement(_share_setting(found.setting, names), tuple(slowdowns([found]))) for found in measured]
    chosen = next_shared_setting(list(by_shared), done, accuracy, most)
    return by_shared[chosen] if chosen else None


def slowdowns(measured: Sequence[MeasuredSetting]) -> list[SlowdownObservation]:
    """Returns the slowdown of each copy at each setting."""
    return [
        SlowdownObservation(
            SharedRun(
                name_of(copy),
                round(copy.sm_percent),
                tuple(
                    Neighbour(name_of(other), round(other.sm_percent))
                    for number, other in enumerate(found.copies)
                    if number != place
                ),
            ),
            copy.beside_ms / copy.alone_ms,
        )
        for found in measured
        for place, copy in enumerate(found.copies)
    ]


def name_of(copy: SharedCopyTimes) -> str:
    return f"{copy.model}/{copy.variant}"


def _share_setting(setting: CopySetting, names: Sequence[str]) -> SharedSetting:
    mine = SharedCopy(names[0], round(setting.sm_percent), setting.batch)
    others = (
        SharedCopy(names[1 + neighbour.number], round(neighbour.sm_percent), neighbour.batch)
        for neighbour in setting.beside
    )
    return SharedSetting((mine, *others))
