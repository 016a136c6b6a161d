"""The cap under random load: 1,000 steps on 100 GPUs in the whole form, a tenth of them every day."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from agents.policy.power import PowerSettings, step
from lab.power.trial import random_case, random_rates, start
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

PERIODS = 15  # from one step of the load to the next


def longest(broken: list[bool]) -> int:
    """Periods in a row."""
    most = now = 0
    for is_broken in broken:
        now = now + 1 if is_broken else 0
        most = max(most, now)
    return most


def test_the_cap_is_held_within_one_period_in_random_load_steps() -> None:
    steps = over_at_all = 0
    for seed in range(scaled(100, 10)):
        case = random_case(seed)
        # Tighter than the plan would have it: most steps up are beyond the cap.
        case = replace(case, cap_w=max(0.75 * case.cap_w, 0.5 * (case.idle_w + case.cap_w)))
        run, draw = start(case, step, PowerSettings(), seed), Random(seed)
        for turn in range(10):
            rates = random_rates(case, draw, 0.3 if turn % 2 else 1.5, 0.0)
            broken = [run.period(rates).peak_w > case.cap_w for _ in range(PERIODS)]
            assert longest(broken) <= 1, f"seed {seed}, step {turn}: {broken}"
            over_at_all += any(broken)
            steps += 1
    assert steps == scaled(1000, 100)
    assert over_at_all >= steps // 20, "the steps must try the cap"


def test_a_gpu_with_room_for_both_limits_stays_at_its_plan_for_an_hour() -> None:
    tried = 0
    for seed in range(200):
        case = random_case(seed)
        rates = random_rates(case, Random(seed), 0.7, 0.0)
        first = start(replace(case, noise=0.0), step, PowerSettings(), 0).period(rates)
        late = [
            (served_period.latency_ms or 0.0) > case.slo_ms[name] / 1.03 or served_period.refused > 0
            for name, served_period in first.served.items()
        ]
        if first.peak_w * 1.03 > case.cap_w or any(late):
            continue
        run = start(case, step, PowerSettings(), seed)
        for _ in range(scaled(3600, 600)):
            run.period(rates)
        assert run.moves == 0, f"seed {seed}"
        assert run.move and run.move.excursions == ()
        assert run.clock_mhz == case.clock.planned
        tried += 1
        if tried == scaled(20, 5):
            return
    pytest.fail("too few cases have room")


def test_under_steady_load_over_a_limit_it_settles() -> None:
    for seed in range(scaled(100, 20)):
        case = random_case(seed)
        run = start(case, step, PowerSettings(longest_wait_periods=60), seed)
        rates = random_rates(case, Random(seed), 1.2, 0.0)
        for _ in range(300):
            run.period(rates)
        before = run.moves
        for _ in range(300):
            run.period(rates)
        # A return is tried once a minute at most, and taken back within a few periods.
        assert run.moves - before <= 5 * 4 * (1 + len(case.servers)), f"seed {seed}: {run.moves - before} moves"
