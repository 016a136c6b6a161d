"""The headroom of a planned rate is split whole, and the moment at which the plan falls is the forecast's own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.forecast import Keeper, PlannedRate, Sample, account, expect
from tests.support.soak import scaled

LOW, HIGH = 620.0, 985.0
PLAN = PlannedRate(1060.0, 500.0, 50.0)


def series(*rates: tuple[float, int], noise: float = 0.01) -> list[Sample]:
    """Returns samples of ten seconds: so many of each rate."""
    draw, found = Random(1), list[Sample]()
    for rate, count in rates:
        for _ in range(count):
            found.append(Sample(10.0 * (len(found) + 1), 10.0, 10.0 * rate * (1 + draw.gauss(0, noise))))
    return found


@pytest.mark.parametrize(
    ("samples", "planned", "keeper"),
    [
        (series((LOW, 150), (HIGH, 10), (LOW, 20)), PLAN, "peak"),
        (series((LOW, 180)), replace(PLAN, rate=670.0), "load"),
        (series((LOW, 180)), replace(PLAN, rate=745.0, margin=0.15), "load"),
        (series((LOW, 180)), replace(PLAN, rate=900.0), "falls"),
        (series((LOW, 180)), replace(PLAN, rate=900.0, risen_seconds=100.0), "rise"),
        (series((LOW, 180)), replace(PLAN, rate=900.0, missed_seconds=100.0), "miss"),
        (series((LOW, 100)), replace(PLAN, rate=900.0, declared=900.0, observed_seconds=1000.0), "declared"),
        (series((LOW, 180)), replace(PLAN, rate=500.0), "rises"),
        (series((LOW, 180)), replace(PLAN, silent_seconds=90.0), "silent"),
    ],
)
def test_the_rule_that_keeps_a_plan_is_named(samples: Sequence[Sample], planned: PlannedRate, keeper: Keeper) -> None:
    found = account(samples, planned)
    assert found
    assert found.keeper == keeper
    assert (found.falls_at is None) == (keeper in ("load", "rises", "silent"))


def test_a_peak_of_late_is_most_of_the_headroom_until_it_no_longer_counts() -> None:
    samples = series((LOW, 150), (HIGH, 10), (LOW, 20))
    found = account(samples, PLAN)
    assert found
    parts = dict(found.parts)
    assert found.peak == pytest.approx(HIGH, rel=0.02)
    assert parts["peak"] == pytest.approx(HIGH - LOW, rel=0.05)
    assert parts["margin"] == 0
    assert found.falls_at == pytest.approx(samples[159].at + 720.0, abs=60.0)


def test_a_margin_has_its_own_part() -> None:
    with_margin = account(series((LOW, 180)), replace(PLAN, rate=745.0, margin=0.15))
    assert with_margin
    assert dict(with_margin.parts)["margin"] == pytest.approx(0.13 * LOW, rel=0.1)


@given(
    st.lists(st.tuples(st.floats(0.0, 2000.0), st.integers(1, 40)), min_size=1, max_size=5),
    st.floats(0.0, 3000.0), st.floats(0.0, 0.5), st.floats(0.0, 4000.0),
)  # fmt: skip
@settings(max_examples=scaled(300, 15, 5), deadline=None)
def test_parts_add_up_and_a_plan_falls_when_it_is_said_to(
    rates: list[tuple[float, int]], planned: float, margin: float, observed: float
) -> None:
    samples = series(*rates)
    plan = PlannedRate(planned, 300.0, 50.0, margin, observed)
    found = account(samples, plan)
    assert found
    assert math.isclose(sum(part for _, part in found.parts), max(0.0, planned - found.arriving), abs_tol=1e-6)
    assert all(part >= 0 for _, part in found.parts)
    if found.falls_at is None:
        return
    later, seconds = list(samples), found.falls_at - samples[-1].at
    while later[-1].at < found.falls_at:
        later.append(Sample(later[-1].at + 20.0, 20.0, 20.0 * found.arriving))
    assert expect(later, plan.wait(seconds)).rate < planned


def test_nothing_is_said_where_nothing_was_counted() -> None:
    assert account([], PLAN) is None
