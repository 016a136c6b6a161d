"""Chooses what a campaign measures next: data in, data out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from agents.contract.campaigns import CopySetting, MeasuredSetting
from solvers.curves import Measurement, Setting, next_setting

TRIES = 2  # of a setting, before it counts as impossible


def choose(
    settings: Sequence[CopySetting],
    measured: Sequence[MeasuredSetting],
    failed: Iterable[CopySetting],
    accuracy: float,
    most: int,
) -> CopySetting | None:
    """Returns the setting to measure next; None if the curve is known to `accuracy`, or nothing is left.

    A setting that failed twice is given up together with all larger batches, which need more memory.
    """
    given_up = [setting.batch for setting, times in Counter(failed).items() if times >= TRIES]
    largest = min(given_up, default=1 << 30) - 1
    possible = [_setting(setting) for setting in settings if setting.batch <= largest]
    chosen = next_setting([measurement_of(found) for found in measured], possible, accuracy, most) if possible else None
    return CopySetting(chosen.batch, chosen.sm_percent, chosen.clock_mhz) if chosen else None


def measurement_of(found: MeasuredSetting) -> Measurement:
    """Returns the part of a measurement that latency curves are fitted to."""
    setting = found.setting
    return Measurement(
        setting.batch, setting.sm_percent, setting.clock_mhz, found.latency_ms, found.spread_ms, found.samples
    )


def _setting(setting: CopySetting) -> Setting:
    return Setting(setting.batch, setting.sm_percent, setting.clock_mhz)
