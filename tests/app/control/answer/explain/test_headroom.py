"""What a service's headroom costs, which rule keeps it and until when, from the loads of the last half hour."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from app.control.answer.explain.headroom import RecentLoads
from app.control.answer.explain.question import Explain
from app.control.domain.decision import SolveOutcome
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.formulate.pose import pose
from app.control.solve.orders import Solve, solve_order
from app.store.fleet.load_points import LoadPoint
from solvers.planning.plan import Plan
from tests.app.control.answer.whatif.worlds import snapshot

SEARCH = "shop/search"
EXPECTED = ExpectedLoad(340.0, observed_seconds=7200.0, reason="held")


@pytest.fixture(scope="module")
def world() -> Snapshot:
    return replace(snapshot(search=100.0), expected={SEARCH: EXPECTED})


@pytest.fixture(scope="module")
def plan(world: Snapshot) -> Plan:
    answer = solve_order(Solve(pose(world).problem, None, 2), alone=True)
    assert answer.outcome is SolveOutcome.SOLVED
    assert answer.plan
    return answer.plan


def recent(world: Snapshot, *rates: tuple[float, int], rose: int = 10**6, attained: float = 1.0) -> RecentLoads:
    """Returns steps of ten seconds: so many of each rate; the planned rate rose at step `rose`."""
    loads = [rate for rate, count in rates for _ in range(count)]
    begin = world.at - timedelta(seconds=10 * len(loads))
    points = [
        LoadPoint(begin + timedelta(seconds=10 * at), rate, 340.0 if at >= rose else 300.0, attained)
        for at, rate in enumerate(loads)
    ]
    return RecentLoads(world.at, 10.0, points)


def test_a_peak_of_late_costs_its_part_and_says_when_it_is_given_back(world: Snapshot, plan: Plan) -> None:
    loads = recent(world, (200.0, 120), (320.0, 30), (200.0, 30))
    found = Explain(world, plan, "service", SEARCH, loads).answered()
    headroom = found["headroom"]
    assert headroom["keptBy"] == "peak"
    falls = datetime.fromisoformat(headroom["fallsAt"])
    assert abs(falls - (world.at + timedelta(minutes=7))) <= timedelta(minutes=1)  # twelve after the peak ended
    price = found["costPerHour"] / found["ratePerSecond"]
    parts = {part["part"]: part for part in headroom["parts"]}
    assert parts["peak"]["ratePerSecond"] == pytest.approx(120.0)
    assert parts["peak"]["costPerHour"] == pytest.approx(120.0 * price)
    assert sum(part["ratePerSecond"] for part in headroom["parts"]) == pytest.approx(140.0)
    assert headroom["costPerHour"] == pytest.approx(140.0 * price)
    first, second = found["sentences"][2:4]
    assert first.startswith("200 requests a second arrive (mean of the last minute), 340 are planned for; of what ")
    assert "for its highest minute of the last 12, which counts as 320, " in first
    assert second == (
        "this is given back once that minute no longer counts, if the load stays as it is, "
        f"at {falls:%Y-%m-%d %H:%M:%S} UTC at the earliest"
    )


def test_a_plan_that_no_rule_keeps_is_given_back_in_the_next_cycle(world: Snapshot, plan: Plan) -> None:
    found = Explain(world, plan, "service", SEARCH, recent(world, (200.0, 180))).answered()
    assert found["headroom"]["keptBy"] == "falls"
    kept = "no rule keeps it: the next cycle plans for less"
    assert any(sentence.startswith(kept) for sentence in found["sentences"])


def test_a_rise_and_a_missed_slo_of_late_keep_a_plan(world: Snapshot, plan: Plan) -> None:
    risen = recent(world, (200.0, 180), rose=165)
    assert Explain(world, plan, "service", SEARCH, risen).answered()["headroom"]["keptBy"] == "rise"
    missed = recent(world, (200.0, 180), attained=0.9)
    assert Explain(world, plan, "service", SEARCH, missed).answered()["headroom"]["keptBy"] == "miss"


def test_where_gpus_are_short_a_missed_slo_keeps_nothing_and_it_is_said(world: Snapshot, plan: Plan) -> None:
    scarce = replace(world, expected={SEARCH: replace(EXPECTED, gives_way=True)})
    found = Explain(scarce, plan, "service", SEARCH, recent(world, (200.0, 180), attained=0.9)).answered()
    assert found["headroom"]["keptBy"] == "falls"
    assert found["headroom"]["givesWay"]
    assert any(sentence.startswith("GPUs are short, so it gives way") for sentence in found["sentences"])


def test_the_learned_margin_costs_its_own_part(world: Snapshot, plan: Plan) -> None:
    learned = replace(world, expected={SEARCH: replace(EXPECTED, rate_per_second=250.0, margin=0.2, risk=0.05)})
    found = Explain(learned, plan, "service", SEARCH, recent(world, (200.0, 180))).answered()
    parts = {part["part"]: part["ratePerSecond"] for part in found["headroom"]["parts"]}
    assert parts["margin"] == pytest.approx(0.2 * 200.0, rel=0.2)
    assert any("as its learned margin" in sentence for sentence in found["sentences"])


def test_a_load_barely_above_its_plan_has_no_headroom_and_does_not_raise_it_yet(world: Snapshot, plan: Plan) -> None:
    found = Explain(world, plan, "service", SEARCH, recent(world, (336.0, 168), (345.0, 12))).answered()
    assert found["headroom"]["costPerHour"] == 0.0
    assert found["sentences"][2:4] == [
        "345 requests a second arrive (mean of the last minute), 340 are planned for",
        "the plan rises once the load is above it for longer or by more than noise explains",
    ]


def test_without_loads_nothing_is_said(world: Snapshot, plan: Plan) -> None:
    assert Explain(world, plan, "service", SEARCH, recent(world)).answered()["headroom"] is None
    assert Explain(world, plan, "service", SEARCH).answered()["headroom"] is None


def test_a_quick_step_is_explained_by_the_rate_that_it_answers(world: Snapshot, plan: Plan) -> None:
    before = replace(world, expected={SEARCH: replace(EXPECTED, rate_per_second=200.0)}, calls={SEARCH: (340.0, 300.0)})
    found = Explain(before, plan, "service", SEARCH, recent(world, (320.0, 180))).answered()
    assert found["ratePerSecond"] == pytest.approx(340.0)
    assert "planned for 340 a second: the load has risen" in found["sentences"]
    assert not any("200" in sentence for sentence in found["sentences"])
