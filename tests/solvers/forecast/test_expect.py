"""What is planned for: still while nothing is news, prompt when it is, and never shrunk for want of news."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.forecast import Forecast, PlannedRate, Sample, expect
from solvers.forecast.samples import usable
from tests.solvers.forecast.weather import Course, daily, follow, spike, steady
from tests.support.soak import scaled

SEEDS = range(scaled(100, 3))
FEW_SEEDS = range(scaled(50, 3))


def level(rate: float, until: int = 3600, start: int = 0, step: int = 10) -> list[Sample]:
    return [Sample(float(at), float(step), rate * step) for at in range(start + step, until + step, step)]


def asked(samples: list[Sample], declared: float = 100.0, planned: float = 100.0, **fields: Any) -> Forecast:
    observed = fields.pop("observed_seconds", None) or sum(sample.seconds for sample in usable(samples))
    return expect(samples, PlannedRate(planned, declared, 50.0, observed_seconds=observed, **fields))


# A steady load


@pytest.mark.slow
@pytest.mark.parametrize("of_cycle", [False, True])
@pytest.mark.parametrize("declared", [0.5, 1.0, 2.0])
def test_two_percent_of_noise_change_nothing(of_cycle: bool, declared: float) -> None:
    for seed in SEEDS:
        course = follow(steady, seed, 0.02, of_cycle, declared=declared)
        # What was declared wrong is put right once it has been observed for long enough.
        assert course.after(10 if declared == 1.0 else 80) == []


@pytest.mark.slow
@pytest.mark.parametrize("of_cycle", [False, True])
def test_ten_percent_of_noise_change_next_to_nothing(of_cycle: bool) -> None:
    changes = [len(follow(steady, seed, 0.1, of_cycle).after(10)) for seed in SEEDS]
    assert max(changes) <= 10
    assert sum(changes) <= len(SEEDS)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.05, 0.5, 5.0, 50.0])
def test_the_natural_scatter_of_arrivals_changes_nothing(rate: float) -> None:
    for seed in FEW_SEEDS:
        assert len(follow(steady, seed, counted=True, rate=rate).after(10)) <= 2


def test_ten_minutes_are_enough_to_measure_ten_percent_of_noise() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        deviations = [max(-3.0, min(3.0, rng.gauss(0.0, 1.0))) for _ in range(60)]  # each lasts for ten seconds
        samples = [Sample(5.0 * at, 5.0, 500 * (1 + 0.1 * deviations[at // 2])) for at in range(120)]
        assert 0.06 <= asked(samples).noise <= 0.16


# A load that moves


@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("sample_seconds", [5, 10, 30])
@pytest.mark.parametrize("start", [2400, 2410, 2420])
def test_a_ramp_is_followed_within_a_cycle_and_forgotten_in_two_steps(
    noise: float, sample_seconds: int, start: int
) -> None:
    for seed in FEW_SEEDS:
        course = follow(lambda now: spike(now, start), seed, noise, cycles=160, sample_seconds=sample_seconds)
        top, end = start + 30 if noise < 0.1 else start + 60, start + 630
        up = [rate for cycle, rate in enumerate(course.planned) if top + 30 <= (cycle + 1) * 30 <= end]
        assert min(up) >= 400 * (0.97 if noise < 0.1 else 0.8)
        assert max(up) <= 400 * (1.25 if noise < 0.1 else 1.6)
        soon = [rate for cycle, rate in enumerate(course.planned) if (cycle + 1) * 30 >= end + 30 + 600]
        assert max(soon) <= 100 * (1.75 if noise < 0.1 else 2.2)  # a swing might come back
        late = [rate for cycle, rate in enumerate(course.planned) if (cycle + 1) * 30 >= end + 30 + 1200]
        assert max(late) <= 100 * (1.3 if noise < 0.1 else 1.4)
        assert len(course.after(start // 30)) <= 7


def test_while_a_load_rises_no_plan_is_below_the_observed_rate() -> None:
    course = follow(lambda now: spike(now, 2400), cycles=100)
    risen = [(found, course.observed[cycle]) for cycle, _, found in course.changes if found.reason == "risen"]
    assert risen
    assert all(found.rate >= observed for found, observed in risen)


@pytest.mark.parametrize(("noise", "most"), [(0.0, 1.08), (0.02, 1.15)])
def test_a_load_that_rises_ever_since_it_was_seen_is_followed(noise: float, most: float) -> None:
    def ramp(seconds: float) -> float:
        return 0.8 + 0.1 * seconds / 60

    for seed in FEW_SEEDS:
        course = follow(ramp, seed, noise, cycles=40)
        known = list(enumerate(course.planned))[12:]  # the noise is known by then
        assert max(100 * ramp(30 * (cycle + 1)) / planned for cycle, planned in known) <= most


@pytest.mark.slow
def test_a_slow_daily_wave_is_followed_without_needless_steps() -> None:
    for seed in FEW_SEEDS:
        course = follow(daily, seed, 0.02, cycles=2 * 2880)
        assert len(course.after(2880)) <= 16
        pairs = zip(course.planned, course.observed, strict=True)
        short = sum(observed > planned * 1.12 for planned, observed in pairs)
        assert short <= 2
        dear = sum(course.planned) / sum(course.observed)
        assert dear <= 1.15


def test_a_service_stays_slightly_ready_after_its_load_ends() -> None:
    course = follow(lambda now: 1.0 if now < 3600 else 0.0, cycles=200)
    assert course.planned[-1] == 2.0
    assert follow(lambda now: 0.0 if now < 3600 else 1.0, cycles=130).planned[-1] >= 100


def test_a_load_that_swings_is_planned_for_at_its_upper_end() -> None:
    course = follow(lambda now: 1.0 + 0.25 * math.sin(2 * math.pi * now / 1200), cycles=400)
    assert course.after(120) == []
    assert 1.2 * 100 <= course.planned[-1] <= 1.4 * 100


# What is no load


@pytest.mark.slow
def test_one_bad_sample_changes_nothing() -> None:
    for place in (300, 301, 302):
        for factor in (0.0, 10.0, 1e6):
            course = follow(steady, 1, 0.02, cycles=400, bad=lambda n, p=place, f=factor: f if n == p else 1.0)  # type: ignore
            assert course.after(10) == []


def test_two_high_samples_in_a_row_count() -> None:
    course = follow(steady, 1, 0.02, cycles=200, bad=lambda n: 3.0 if n in (450, 451) else 1.0)
    assert [found.reason for _, _, found in course.after(140)] == ["risen", "fallen"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1.0, 1e308])
def test_an_invalid_amount_is_ignored(value: float) -> None:
    good = level(100)
    bad = [Sample(3605, 5, value), Sample(value if value != -1.0 else math.nan, 5, 500), Sample(3607, value, 500)]
    assert asked([*good, *bad[:1], *bad[1:2], *(bad[2:] if value != 1e308 else [])]) == asked(good)


def test_a_gap_lowers_nothing_and_the_load_after_it_counts() -> None:
    gap = level(100, 3000) + level(100, 3600, 3300)
    assert asked(gap).rate == 100
    low = level(100, 3000) + level(40, 3400, 3300)
    assert asked(low).reason == "held"
    assert asked(low + level(40, 3700, 3400)).reason == "fallen"


def test_the_plan_stays_while_no_sample_arrives() -> None:
    silent = asked(level(10), silent_seconds=120)
    assert (silent.rate, silent.reason) == (100, "silent")


def test_a_plan_that_just_rose_does_not_fall() -> None:
    assert asked(level(10), risen_seconds=100).reason == "held"
    assert asked(level(10), risen_seconds=400).reason == "fallen"


def test_a_missed_slo_keeps_the_plan_up_but_is_no_sign_of_load() -> None:
    assert asked(level(10), missed_seconds=100).reason == "held"
    assert asked(level(10), missed_seconds=400).reason == "fallen"
    busy = [*level(100, 600), Sample(605.0, 5.0, 575.0)]  # 15 % more for five seconds: three standard deviations
    assert asked(busy, missed_seconds=0.0).reason == "held"
    assert asked(busy, risen_seconds=100.0).reason == "risen"


def test_two_percent_of_noise_change_nothing_while_the_slo_is_missed() -> None:
    for seed in SEEDS:
        assert follow(steady, seed, 0.02, counted=True, rate=200.0, cycles=110, missed_seconds=0.0).changes == []


# What is declared


def test_the_declared_rate_is_expected_of_a_service_without_samples() -> None:
    assert asked([], planned=0.0).rate == 100
    assert asked([], planned=400.0).rate == 100


def test_the_declared_rate_is_a_floor_until_enough_was_observed() -> None:
    assert asked(level(10, 1700), planned=0.0).rate == 100
    assert asked(level(10, 1900)).rate == pytest.approx(10 * (1.05 + 3 / math.sqrt(6000)))
    assert asked(level(300, 600), planned=0.0).rate == pytest.approx(300 * (1.05 + 3 / math.sqrt(180_000)))


def test_a_plan_below_the_floor_is_raised_to_it() -> None:
    raised = asked(level(10, 600), planned=40.0)
    assert (raised.rate, raised.reason) == (100, "declared")


@given(
    st.lists(st.tuples(st.floats(0, 4000), st.floats(0, 120), st.floats(0, 1e9)), max_size=60),
    st.floats(1e-3, 1e6), st.floats(0, 1e6), st.floats(0, 3600),
)  # fmt: skip
@settings(max_examples=scaled(2000, 100))
def test_the_rate_can_be_planned_for_with_any_samples(
    counted: list[tuple[float, float, float]], declared: float, planned: float, observed: float
) -> None:
    samples = [Sample(*values) for values in counted]
    found = expect(samples, PlannedRate(planned, declared, 50.0, observed_seconds=observed))
    assert math.isfinite(found.rate)
    assert found.rate > 0
    assert found.rate >= declared or observed >= 1800
    assert found.low >= 0
    assert found.low <= found.high
    repeated = expect(samples, PlannedRate(found.rate, declared, 50.0, observed_seconds=observed))
    assert repeated.reason != "fallen" or found.reason != "risen" or repeated.rate >= found.low


def test_the_order_of_samples_changes_nothing() -> None:
    samples = level(100, 600)
    assert asked(samples[::-1]) == asked(samples)
    assert asked(samples + samples[10:20]) == asked(samples)


def test_courses_are_the_same_for_the_same_seed() -> None:
    course: Course = follow(steady, 3, 0.1, cycles=50)
    assert course == follow(steady, 3, 0.1, cycles=50)
