"""Chooses which setting to measure next."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, pi, sqrt

import numpy as np

from solvers.curves.candidates import CANDIDATES, LEAST_TO_COMPARE
from solvers.curves.curve import LatencyCurve, fit
from solvers.curves.measurement import Measurement, Setting
from solvers.curves.mixture import WIDE, fit_mixture
from solvers.curves.observations import observations, places
from solvers.curves.process import Fitted
from solvers.curves.shapes import Phases

LEAST_MEASUREMENTS = 8  # before the curve's own word on its error is believed
LAST_ONES = 3  # measurements that the curve of those before them must have foreseen
DISPUTE_ACCURACIES = 3.0  # by which two forms must differ at a setting, in accuracies asked for
DIGITS = 9  # to which gains are compared, so that rounding decides nothing


def next_setting(
    measurements: Sequence[Measurement],
    settings: Sequence[Setting],
    accuracy: float,
    most: int,
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
    if len(measurements) >= LEAST_TO_COMPARE:
        curve = fit(measurements, highest)
        if disputed := _find_disputed(measurements, curve, waiting, accuracy):
            return disputed
        if accuracy > 0.0 and _accurate(measurements, curve, settings, accuracy):
            return None
    observed = observations(measurements, highest)
    everywhere = sorted({*settings, *measured})
    gains = _gains(fit_mixture(Phases(), observed, WIDE).fits[0], everywhere, highest)
    gain_of = dict(zip(everywhere, gains, strict=True))
    return max(waiting, key=lambda setting: gain_of[setting])  # the first of equals


def _find_disputed(
    measurements: Sequence[Measurement], curve: LatencyCurve, waiting: Sequence[Setting], accuracy: float
) -> Setting | None:
    """Returns the setting at which the best form and the usual one differ most; None if they are close everywhere.

    Few measurements may prefer a form by chance. One more where the two are far apart decides between them.
    """
    usual = next(iter(CANDIDATES))
    if curve.method == usual:
        return None
    other = fit(measurements, curve.highest_clock_mhz, usual)
    predicted = zip(curve.predict(waiting)[0], other.predict(waiting)[0], strict=True)
    gaps = [round(abs(mean - other_mean), DIGITS) for mean, other_mean in predicted]
    return waiting[gaps.index(max(gaps))] if max(gaps) > DISPUTE_ACCURACIES * accuracy else None


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
    measurements: Sequence[Measurement], curve: LatencyCurve, settings: Sequence[Setting], accuracy: float
) -> bool:
    """Returns whether the curve errs at most `accuracy`: by its deviations, on left-out and on the last measurements.

    A measurement that is left out lies among others, and the form was chosen with it in view. The last ones were
    measured where the curve was least sure, so they show what it is worth where nothing is measured.
    """
    if len(measurements) < LEAST_MEASUREMENTS:
        return False
    _, deviations = curve.predict(sorted(set(settings)))
    expected = sqrt(2.0 / pi) * float(np.mean(deviations))  # the mean absolute error of a normal variable
    if max(expected, curve.error) > accuracy:
        return False
    return _error_on(measurements[-LAST_ONES:], fit(measurements[:-LAST_ONES], curve.highest_clock_mhz)) <= accuracy


def _error_on(measurements: Sequence[Measurement], curve: LatencyCurve) -> float:
    """Returns the mean share by which a curve misses measurements that it was not fitted to."""
    means, _ = curve.predict([measurement.setting for measurement in measurements])
    errors = [abs(exp(mean) / found.latency_ms - 1.0) for mean, found in zip(means, measurements, strict=True)]
    return float(np.mean(errors))
