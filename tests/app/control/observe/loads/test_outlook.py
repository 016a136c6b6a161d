"""A day that repeats raises the plan before the load rises; a plan that forecasts well is left alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from app.control.observe.loads.loads import raise_by_outlook
from app.control.observe.loads.outlook import LEARNED_STEPS, STEP_SECONDS, Outlook
from solvers.forecast import Forecast, Sample

BUCKET_SECONDS = 100.0


def followed(outlook: Outlook, days: int, rate_at: Callable[[int], float], planned_at: Callable[[int], float]) -> None:
    per_step = int(STEP_SECONDS / BUCKET_SECONDS)
    for step in range(days * 144):
        for part in range(per_step):
            at = step * STEP_SECONDS + (part + 0.5) * BUCKET_SECONDS
            outlook.add(Sample(at, BUCKET_SECONDS, rate_at(step) * BUCKET_SECONDS), planned_at(step))


def office(step: int) -> float:
    """A load that starts at eight, and is the same each day but for a per cent of noise."""
    noise = 1 + 0.01 * math.sin(7.3 * step)
    return noise * (1000.0 if 48 <= step % 144 < 108 else 100.0)


def last(step: int) -> float:
    return office(max(step - 1, 0)) * 1.05


@pytest.mark.slow
def test_a_rise_that_comes_every_day_is_planned_for_before_it_comes() -> None:
    outlook = Outlook()
    followed(outlook, 9, office, last)
    eight = 9 * 144 + 48
    for step in range(9 * 144, eight + 1):  # the first bucket of a step makes its forecast
        outlook.add(Sample(step * STEP_SECONDS + 50, 400.0, office(step) * 400), last(step))
        if step == eight - 4:
            assert outlook.raised(105.0) == 105.0
    assert outlook.losses[0] < outlook.losses[1]
    assert outlook.raised(105.0) > 500.0


def test_a_band_is_stated_for_each_step_judged_once_and_followed_by_hours() -> None:
    outlook, stated = Outlook(), []
    for part in range(8 * 6 * 6):
        rate = 1000.0 if part == 8 * 6 * 6 - 2 else 100.0  # the step before the last one leaves its band
        sample = Sample((part + 0.5) * BUCKET_SECONDS, BUCKET_SECONDS, rate * BUCKET_SECONDS)
        stated.append(outlook.add(sample, 120.0))
    assert stated[:6] == [None] * 6, "nothing is stated before a step is known"
    known = [each for each in stated if each]
    assert all(each.lower <= 100.0 <= each.upper for each in known)
    judged = [each.has_held for each in known if each.has_held is not None]
    assert judged == [True] * 46
    outlook.add(Sample(48 * STEP_SECONDS + 50, 100.0, 10_000.0), 120.0)
    hours = [each.hours for each in known if each.hours]
    assert len(hours) == 7
    assert all(hour.lower <= 100.0 <= hour.upper for hour in hours[-1])
    assert len(hours[-1]) == 3


def test_a_rate_outside_its_band_is_said_to_be_once() -> None:
    outlook = Outlook()
    followed(outlook, 1, lambda _: 100.0, lambda _: 100.0)
    first = 144 * STEP_SECONDS
    outlook.add(Sample(first + 300, 600.0, 600 * 400.0), 100.0)
    found = [outlook.add(Sample(first + 600 + at, 100.0, 10_000.0), 100.0) for at in (50, 150)]
    assert [each.has_held for each in found if each] == [False, None]


def test_nothing_is_raised_before_a_day_is_known() -> None:
    outlook = Outlook()
    followed(outlook, 1, office, lambda _: 1.0)
    assert outlook.steps < LEARNED_STEPS
    assert outlook.raised(1.0) == 1.0


def test_a_plan_that_forecasts_better_is_left_alone() -> None:
    outlook, random = Outlook(), np.random.default_rng(1)
    rates = 300.0 * np.exp(np.cumsum(random.normal(0, 0.05, 4 * 144)))
    followed(outlook, 4, lambda step: float(rates[step]), lambda step: float(rates[min(step, len(rates) - 1)]) * 1.01)
    assert outlook.losses[0] > outlook.losses[1]
    assert outlook.raised(1.0) == 1.0


@pytest.mark.parametrize(
    ("upper", "base", "expected"), [(200.0, 210.0, 210.0), (150.0, 210.0, 150.0), (101.0, 210.0, 100.0)]
)
def test_a_plan_falls_to_the_outlook_only_where_that_is_worth_it(upper: float, base: float, expected: float) -> None:
    outlook = Outlook(steps=LEARNED_STEPS, upper=upper, losses=(1.0, 2.0))
    found = raise_by_outlook(outlook, Forecast(100.0, 90.0, 115.0, "fallen"), base)
    assert found.rate == expected
    assert found.high >= found.rate
