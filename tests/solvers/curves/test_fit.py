"""Fitted curves find the law behind few measurements, and say how sure they are."""

from __future__ import annotations

from math import exp
from statistics import NormalDist

import pytest

from solvers.curves.candidates import CANDIDATES
from solvers.curves.curve import clock_exponent, fit
from solvers.curves.measurement import Measurement, Setting
from solvers.curves.mixture import ASSUMPTIONS
from solvers.curves.observations import observations
from solvers.curves.process import FitTask, fit_processes
from solvers.curves.shapes import Phases
from tests.solvers.curves.shapes import (
    BATCHES,
    CLOCK_MHZ,
    LAWS,
    SETTINGS,
    SHARES,
    campaign,
    compute_bound,
    launch_bound,
    measured,
)
from tests.support.soak import scaled


def errors(measurements: list[Measurement], law: str, method: str | None = None) -> list[float]:
    """Returns the relative errors at settings that were not measured."""
    curve = fit(measurements, CLOCK_MHZ, method)
    seen = {measurement.setting for measurement in measurements}
    left = [setting for setting in SETTINGS if setting not in seen]
    means, _ = curve.predict(left)
    return [abs(exp(mean) / LAWS[law](setting) - 1.0) for mean, setting in zip(means, left, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_sixteen_measurements_find_the_law(law: str) -> None:
    found = errors(campaign(LAWS[law]), law)
    assert sum(found) / len(found) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_an_outlier_among_the_measurements_does_little(law: str) -> None:
    done = campaign(LAWS[law])
    spoilt = done[8]
    done[8] = Measurement(spoilt.batch, spoilt.sm_percent, CLOCK_MHZ, 1.5 * spoilt.latency_ms, 0.0, 1)
    found = errors(done, law)
    assert sum(found) / len(found) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("method", CANDIDATES)
def test_every_candidate_comes_near_a_plain_law(method: str) -> None:
    found = errors(campaign(LAWS["power law"]), "power law", method)
    assert sum(found) / len(found) < 0.1


@pytest.mark.slow
def test_more_measurements_make_the_curve_surer_and_better() -> None:
    means, spreads = [], []
    for most in (4, 8, 16):
        done = campaign(launch_bound, most)
        found = errors(done, "launch bound")
        curve = fit(done, CLOCK_MHZ)
        means.append(sum(found) / len(found))
        spreads.append(sum(curve.predict(SETTINGS)[1]))
    assert means == sorted(means, reverse=True)
    assert spreads == sorted(spreads, reverse=True)


@pytest.mark.slow
def test_the_upper_quantile_covers_what_it_states_of_noisy_measurements() -> None:
    below = total = 0
    upwards = NormalDist().inv_cdf(0.9)
    for law in LAWS:
        for seed in range(scaled(3, 1)):
            done = campaign(LAWS[law], noise=0.04, seed=seed)
            curve = fit(done, CLOCK_MHZ)
            seen = {measurement.setting for measurement in done}
            left = [setting for setting in SETTINGS if setting not in seen]
            for setting, mean, deviation in zip(left, *curve.predict(left), strict=True):
                upper = exp(mean + upwards * deviation)
                below += measured(setting, LAWS[law], 0.04, seed).latency_ms <= upper
                total += 1
            last = left[-1]
            assert curve.quantile_ms(last.batch, last.sm_percent, last.clock_mhz, 0.9) == pytest.approx(upper)
    assert 0.85 <= below / total <= 0.95


@pytest.mark.slow
def test_quantiles_rise_and_the_middle_is_the_mean() -> None:
    curve = fit(campaign(compute_bound, noise=0.03), CLOCK_MHZ)
    values = [curve.quantile_ms(4, 35, CLOCK_MHZ, quantile) for quantile in (0.1, 0.5, 0.9, 0.99)]
    assert values == sorted(values)
    assert values[1] == pytest.approx(curve.mean_ms(4, 35, CLOCK_MHZ))
    with pytest.raises(ValueError, match="quantile 1 is outside"):
        curve.quantile_ms(4, 35, CLOCK_MHZ, 1.0)


def test_a_clock_slows_the_gpus_part() -> None:
    settings = [
        Setting(batch, share, clock) for batch in (1, 8, 32) for share in (10, 50, 100) for clock in (700, 1400)
    ]
    curve = fit([measured(setting, compute_bound) for setting in settings], CLOCK_MHZ)
    slow, fast = (curve.mean_ms(16, 20, clock) for clock in (700, 1400))
    assert slow / fast == pytest.approx(2.0, rel=0.05)
    assert clock_exponent(curve, BATCHES, SHARES, 700) == pytest.approx(1.0, abs=0.1)
    launched = fit([measured(setting, launch_bound) for setting in settings], CLOCK_MHZ)
    assert launched.mean_ms(1, 100, 700) == pytest.approx(9.0, rel=0.05)


@pytest.mark.slow
def test_the_error_is_of_measurements_left_out() -> None:
    quiet, noisy = (fit(campaign(compute_bound, noise=noise), CLOCK_MHZ) for noise in (0.0, 0.08))
    assert quiet.error < noisy.error


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
def test_what_is_fitted_at_once_is_fitted_as_if_alone(law: str) -> None:
    seen = observations(campaign(LAWS[law], noise=0.05), CLOCK_MHZ)
    shape = Phases()
    starts = shape.starts(shape.prior(seen))
    tasks = [FitTask(seen.without(index), ASSUMPTIONS[index], starts[index % len(starts)]) for index in range(8)]
    for together, task in zip(fit_processes(shape, tasks), tasks, strict=True):
        (alone,) = fit_processes(shape, [task])
        assert together.parameters == pytest.approx(alone.parameters, rel=1e-6, abs=1e-6)
        assert together.likelihood == pytest.approx(alone.likelihood, rel=1e-6)
