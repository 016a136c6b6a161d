"""Chooses which setting to measure next."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2

from solvers.curves.curve import deviations, fit
from solvers.curves.measurement import Measurement, Setting

ACCURACY_SHARE = 0.04
MOST_MEASUREMENTS = 16
LEAST_MEASUREMENTS = 8  # before the curve's own word on its error is believed


def next_setting(
    measurements: Sequence[Measurement],
    settings: Sequence[Setting],
    accuracy: float = ACCURACY_SHARE,
    most: int = MOST_MEASUREMENTS,
) -> Setting | None:
    """Returns what to measure next: the setting of which least is known. None when `accuracy` is reached."""
    measured = {measurement.setting for measurement in measurements}
    waiting = [setting for setting in sorted(set(settings)) if setting not in measured]
    if not waiting or len(measurements) >= most:
        return None
    highest = max(setting.clock_mhz for setting in settings)
    if len(measurements) < 2:
        return max(waiting, key=lambda setting: _distance(setting, measured))
    if len(measurements) >= LEAST_MEASUREMENTS and fit(measurements, highest).error <= accuracy:
        return None
    unsure = deviations(measurements, waiting, highest)
    return waiting[max(range(len(waiting)), key=lambda index: (round(unsure[index], 9), -index))]


def _distance(setting: Setting, measured: set[Setting]) -> tuple[float, float]:
    """How far a setting is from what is measured; of the first, how large its batch and share are."""
    size = log2(setting.batch) + log2(setting.sm_percent) + log2(setting.clock_mhz)
    gaps = [
        abs(log2(setting.batch / other.batch)) + abs(log2(setting.sm_percent / other.sm_percent)) for other in measured
    ]
    return min(gaps, default=0.0), size
