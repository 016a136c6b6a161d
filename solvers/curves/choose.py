"""Chooses which setting to measure next."""

from __future__ import annotations

from collections.abc import Sequence
from math import pi, sqrt

import numpy as np

from solvers.curves.curve import fit
from solvers.curves.measurement import Measurement, Setting
from solvers.curves.mixture import WIDE, fit_mixture
from solvers.curves.observations import observations, places
from solvers.curves.process import Fitted
from solvers.curves.shapes import Phases

ACCURACY_SHARE = 0.04
MOST_MEASUREMENTS = 16
LEAST_MEASUREMENTS = 8  # before the curve's own word on its error is believed
DIGITS = 9  # to which gains are compared, so that rounding decides nothing


def next_setting(
    measurements: Sequence[Measurement],
    settings: Sequence[Setting],
    accuracy: float = ACCURACY_SHARE,
    most: int = MOST_MEASUREMENTS,
) -> Setting | None:
    """Returns what to measure next: the setting whose measurement makes the whole curve surest.

    None when the curve is as accurate as asked for, or nothing is left to measure. Settings that cannot be measured
    (no memory for the batch) are simply left out of `settings` by the caller.
    """
    measured = {measurement.setting for measurement in measurements}
    waiting = [setting for setting in sorted(set(settings)) if setting not in measured]
    if not waiting or len(measurements) >= most:
        return None
    if len(measurements) < 2:
        return _extreme(waiting, measurements)
    highest = max(setting.clock_mhz for setting in (*settings, *measured))
    if (
        accuracy > 0.0
        and len(measurements) >= LEAST_MEASUREMENTS
        and _accurate(measurements, settings, highest, accuracy)
    ):
        return None
    seen = observations(measurements, highest)
    everywhere = sorted({*settings, *measured})
    gains = _gains(fit_mixture(Phases(), seen, WIDE).fits[0], everywhere, highest)
    gain_of = dict(zip(everywhere, gains, strict=True))
    return max(waiting, key=lambda setting: gain_of[setting])  # the first of equals


def _extreme(waiting: Sequence[Setting], measurements: Sequence[Measurement]) -> Setting:
    """Returns the setting with the most work on each SM first, then that with the least: the ends of the curve."""
    by_work = sorted(waiting, key=lambda setting: (setting.batch / setting.sm_percent, -setting.clock_mhz))
    return by_work[0] if measurements else by_work[-1]


def _gains(fitted: Fitted, settings: Sequence[Setting], highest_clock_mhz: int) -> list[float]:
    """Returns by how much a measurement at each setting lowers the mean deviation over all of them."""
    _, covariance, _ = fitted.covariance(places(settings, highest_clock_mhz))
    variance = np.maximum(np.diag(covariance), 0.0)
    after = variance[None, :] - covariance**2 / (variance + fitted.unexplained.noise**2)[:, None]
    gains = np.sqrt(variance).mean() - np.sqrt(np.maximum(after, 0.0)).mean(axis=1)
    return [round(float(gain), DIGITS) for gain in gains]


def _accurate(
    measurements: Sequence[Measurement], settings: Sequence[Setting], highest_clock_mhz: int, accuracy: float
) -> bool:
    """Tells whether the curve errs at most `accuracy`: by its own deviations, and on measurements left out."""
    curve = fit(measurements, highest_clock_mhz)
    _, deviations = curve.told(sorted(set(settings)))
    expected = sqrt(2.0 / pi) * float(np.mean(deviations))  # the mean absolute error of a normal variable
    return max(expected, curve.error) <= accuracy
