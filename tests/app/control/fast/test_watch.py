"""The fast lane is called at once where load or latency has moved, and never for noise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from app.control.fast import CapacityNeed, LoadWatch, PlannedLoad, StepTrigger, watch_loads
from app.control.fast.tuning import TUNING
from tests.support.soak import scaled

TICKS = 1_000
S = "shop/search"


@dataclass(frozen=True)
class Seen:
    """A second of a service."""

    rate_per_second: float
    within_slo: float | None = None


def calls(
    readings: Iterable[Seen], plan: Callable[[float], PlannedLoad], moving: bool = False, answer: bool = False
) -> list[tuple[int, CapacityNeed]]:
    """Tick by tick, a second each. `answer`: rates that were called for are planned for from then on."""
    watches: dict[str, LoadWatch] = {}
    found, rate = [], 0.0
    for tick, reading in enumerate(readings):
        watched = watch_loads(watches, {S: plan(rate)}, {S: reading}, float(tick), moving=[S] if moving else [])
        watches = dict(watched.watches)
        for call in watched.needs:
            found.append((tick, call))
            rate = call.rate_per_second if answer else rate
    return found


def planned(rate: float, **fields: float) -> Callable[[float], PlannedLoad]:
    usual = PlannedLoad(rate, high=0.0, percentile=99.0, start_seconds=20.0, slo_seconds=0.0)
    return lambda since: replace(usual, rate_per_second=max(rate, since), **fields)


HUNDRED = planned(100.0)(0.0)


@pytest.mark.parametrize("noise", [0.02, 0.1])
@pytest.mark.parametrize("rate", [20.0, 300.0, 5_000.0])
def test_noise_triggers_nothing_in_a_thousand_ticks(noise: float, rate: float) -> None:
    for seed in range(scaled(200, 10)):
        rng = np.random.default_rng(seed)
        rates = rate * (1 + noise * rng.standard_normal(TICKS))
        late = rng.binomial(np.maximum(1, rates.astype(int)), 0.02) / np.maximum(1, rates.astype(int))
        readings = (Seen(float(rate), 1 - float(share)) for rate, share in zip(rates, late, strict=True))
        assert calls(readings, planned(rate, percentile=98.0)) == []


@pytest.mark.parametrize("rate", [200.0, 1_000.0])
def test_noise_of_ten_seconds_at_a_time_triggers_next_to_nothing_once_it_is_known(rate: float) -> None:
    found, seeds = 0, range(scaled(8, 2))
    for seed in seeds:
        rng = np.random.default_rng(seed)
        deviations = np.repeat(np.clip(rng.standard_normal(400), -3, 3), 10)  # each lasts for ten seconds
        counts = np.convolve(rng.poisson(rate * (1 + 0.1 * deviations)), np.ones(5) / 5, mode="valid")
        found += sum(tick >= 600 for tick, _ in calls((Seen(float(count)) for count in counts), planned(rate)))
    assert found <= 4 * len(seeds)  # each in an hour; a plan that follows the first call has none of the others


@pytest.mark.parametrize("rate", [1.0, 5.0, 40.0])
def test_random_arrivals_at_the_planned_rate_trigger_nothing(rate: float) -> None:
    rng = np.random.default_rng(4)
    counts = rng.poisson(rate, TICKS * scaled(20, 2))
    assert calls((Seen(float(rate)) for rate in counts), planned(rate)) == []


def test_readings_that_overlap_are_no_more_certain_than_others() -> None:
    rng = np.random.default_rng(7)
    rates = 100 * (1 + 0.1 * rng.standard_normal(TICKS + 4))
    overlapping = np.convolve(rates, np.ones(5) / 5, mode="valid")
    assert calls((Seen(float(rate)) for rate in overlapping), planned(100.0)) == []


@pytest.mark.parametrize("rate", [20.0, 300.0, 5_000.0])
def test_a_jump_calls_within_one_tick(rate: float) -> None:
    readings = [Seen(rate)] * 20 + [Seen(4 * rate)]
    [(tick, call)] = calls(readings, planned(rate))
    assert tick == 20
    assert call.trigger is StepTrigger.LOAD_ROSE
    assert call.least >= 4 * rate


def test_a_slow_rise_calls_within_seconds_and_its_trend_is_looked_ahead() -> None:
    readings = [Seen(100.0)] * 20 + [Seen(100.0 * (1 + tick / 10)) for tick in range(31)]
    tick, call = calls(readings, planned(100.0))[0]
    assert tick <= 28
    assert call.rate_per_second > 1.2 * readings[tick].rate_per_second
    assert call.rate_per_second <= 2 * readings[tick].rate_per_second


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
def test_a_ramp_to_four_times_takes_a_few_calls_and_what_is_planned_for_runs_ahead_of_it(noise: float) -> None:
    rng = np.random.default_rng(3)
    ramp = [
        Seen(100.0 * min(4.0, max(1.0, 1 + (tick - 90) / 10)) * (1 + noise * float(rng.standard_normal())))
        for tick in range(700)
    ]
    found = calls(ramp, planned(100.0), answer=True)
    assert 1 <= len(found) <= 8
    assert found[-1][0] <= 140
    assert 400.0 <= found[-1][1].rate_per_second <= 900.0  # the cycle removes the excess
    early = [call.rate_per_second for tick, call in found if tick <= 112]
    assert max(early) >= 400.0  # eight seconds before the load is there


def test_a_service_known_to_be_steady_triggers_sooner() -> None:
    def first(noise: float) -> int:
        rng = np.random.default_rng(5)
        steady = 1_000 * (1 + noise * rng.standard_normal(300))
        readings = [Seen(float(rate)) for rate in steady] + [Seen(1_200.0)] * 60
        return calls(readings, planned(1_000.0))[0][0]

    assert first(0.01) < first(0.09)


@pytest.mark.parametrize("factor", [1.05, 1.09, 0.3])
def test_a_rise_that_the_cycle_follows_triggers_nothing(factor: float) -> None:
    assert calls([Seen(100.0 * factor)] * 300, planned(100.0)) == []


def test_the_upper_edge_of_the_forecast_is_no_surprise() -> None:
    assert calls([Seen(130.0)] * 300, planned(100.0, high=125.0)) == []
    assert calls([Seen(150.0)] * 300, planned(100.0, high=125.0)) != []


def test_misses_at_the_planned_load_call_within_seconds() -> None:
    readings = [Seen(200.0, 0.985)] * 30 + [Seen(200.0, 0.7)] * 10
    tick, call = calls(readings, planned(200.0, percentile=98.0))[0]
    assert tick <= 33
    assert call.trigger is StepTrigger.SLO_MISSED
    assert call.rate_per_second == pytest.approx(200.0 * TUNING.raise_factor)


def test_an_occasional_burst_of_misses_triggers_nothing() -> None:
    readings = [Seen(1_200.0, 0.87 if tick % 60 < 6 else 0.99) for tick in range(1_800)]
    assert calls(readings, planned(1_200.0, percentile=98.0, slo_seconds=0.12)) == []
    lasting = [Seen(1_200.0, 0.99)] * 30 + [Seen(1_200.0, 0.5)] * 30
    tick, call = calls(lasting, planned(1_200.0, percentile=98.0, slo_seconds=0.12))[0]
    assert call.trigger is StepTrigger.SLO_MISSED
    assert tick <= 45


def test_misses_that_more_load_than_planned_explains_are_no_misses() -> None:
    found = calls([Seen(150.0, 0.5)] * 300, planned(100.0, percentile=98.0))
    assert {call.trigger for _, call in found} == {StepTrigger.LOAD_ROSE}


def test_misses_during_a_hand_over_trigger_nothing() -> None:
    assert calls([Seen(200.0, 0.7)] * 60, planned(200.0, percentile=98.0), moving=True) == []


def test_misses_that_more_capacity_does_not_cure_end_in_a_bounded_number_of_calls() -> None:
    found = calls([Seen(200.0, 0.5)] * 3_000, planned(200.0, percentile=98.0), answer=True)
    total = np.prod([TUNING.raise_factor for _ in found])
    assert len(found) >= 1
    assert total <= TUNING.most_raise_factor * (1 + 1e-9)
    gaps = np.diff([tick for tick, _ in found])
    assert (gaps >= 30).all()


def test_calls_that_lead_to_nothing_come_ever_more_seldom() -> None:
    found = calls([Seen(300.0)] * 600, planned(100.0))
    gaps = np.diff([tick for tick, _ in found])
    assert len(found) < 20
    assert gaps[-1] >= 60


def test_a_service_that_is_unknown_or_without_readings_triggers_nothing() -> None:
    watched = watch_loads({}, {S: HUNDRED}, {"shop/other": Seen(900.0)}, 0.0, ())
    assert watched.needs == ()
    assert watched.watches == {}


def test_a_watch_is_forgotten_with_its_service() -> None:
    watched = watch_loads({}, {S: HUNDRED}, {S: Seen(100.0)}, 0.0, ())
    assert watch_loads(watched.watches, {}, {S: Seen(100.0)}, 1.0, ()).watches == {}


def test_a_reader_that_slept_does_not_count_the_time_it_missed() -> None:
    first = watch_loads({}, {S: HUNDRED}, {S: Seen(100.0)}, 0.0, ())
    later = watch_loads(first.watches, {S: HUNDRED}, {S: Seen(111.0)}, 10_000.0, ())
    assert later.needs == ()
