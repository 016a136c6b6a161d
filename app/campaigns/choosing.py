"""Chooses what a campaign measures next: data in, data out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agents.contract.campaigns import CopySetting, MeasuredSetting
from app.store.fleet.campaigns import SettingFailure
from solvers.curves.choose import next_setting
from solvers.curves.measurement import Measurement, Setting

TRIES = 2  # of a setting, before it counts as impossible
NO_ANSWERS = "not_measured"  # a failure of a copy that was up


def choose(
    settings: Sequence[CopySetting],
    measured: Sequence[MeasuredSetting],
    failures: Iterable[SettingFailure],
    accuracy: float,
    most: int,
) -> CopySetting | None:
    """Returns the setting to measure next; None if the curve is known to `accuracy`, or nothing is left.

    A setting that failed twice is given up together with all larger batches, which need more memory; where the copy
    was up and only its answers failed, with those that get no more SMs and no higher clock.
    """
    tried: dict[CopySetting, list[str]] = {}
    for failure in failures:
        tried.setdefault(failure.setting, []).append(failure.reason)
    given_up = {setting: set(reasons) == {NO_ANSWERS} for setting, reasons in tried.items() if len(reasons) >= TRIES}
    possible = [
        Setting(setting.batch, setting.sm_percent, setting.clock_mhz)
        for setting in settings
        if not any(_is_given_up(setting, failed, was_up) for failed, was_up in given_up.items())
    ]
    chosen = next_setting([measurement_of(found) for found in measured], possible, accuracy, most) if possible else None
    return CopySetting(chosen.batch, chosen.sm_percent, chosen.clock_mhz) if chosen else None


def _is_given_up(setting: CopySetting, failed: CopySetting, was_up: bool) -> bool:
    """Returns whether the failure of another setting, whose copy was up or was not, makes this one hopeless."""
    is_faster = setting.sm_percent > failed.sm_percent or setting.clock_mhz > failed.clock_mhz
    return setting.batch >= failed.batch and not (was_up and is_faster)


def measurement_of(found: MeasuredSetting) -> Measurement:
    """Returns the part of a measurement that latency curves are fitted to."""
    setting = found.setting
    return Measurement(
        setting.batch, setting.sm_percent, setting.clock_mhz, found.latency_ms, found.spread_ms, found.samples
    )
