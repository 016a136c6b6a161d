"""The effect of a change is the difference of two plans found alike, and the snapshot stays as it was."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any, get_args

import pytest

from app.api.answers.whatif import WhatIfRequest
from app.control.answer.whatif.change import RateChange, WhatIfChange, WrongChange, apply_change
from app.control.answer.whatif.prices import price_slos
from app.control.answer.whatif.question import WhatIf
from app.control.decide.decide import draft_changes, hold_back
from app.control.domain.snapshot import DeclaredObject, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.orders import Solve, solve_order
from solvers.planners.names import BASELINES, HETSEV, HPA, MELANGE, PLANNERS
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from tests.app.control.answer.whatif.worlds import snapshot


def ask(world: Snapshot, change: WhatIfChange, **more: Any) -> Any:
    return WhatIf(world, change, seconds=60.0, work=2, **more).answered()


@pytest.mark.slow
def test_more_load_costs_more_and_more_gpus_serve_what_was_left_out() -> None:
    world = snapshot(search=300.0, ads=200.0)
    more = ask(world, WhatIfChange(rates={"shop/search": RateChange(times=2.0)}))
    assert more["costDelta"] >= 0
    assert more["services"][0]["service"] == "shop/search"
    assert more["services"][0]["after"]["ratePerSecond"] == 600.0
    flooded = snapshot(search=30_000.0)
    helped = ask(flooded, WhatIfChange(gpus={"v100": 8}))
    assert helped["before"]["unserved"] == 1
    assert helped["after"]["unservedCost"] < helped["before"]["unservedCost"]
    assert helped["costDelta"] < 0


@pytest.mark.slow
def test_nothing_asked_changes_nothing() -> None:
    answer = ask(snapshot(search=300.0), WhatIfChange())
    assert answer["costDelta"] == 0.0
    assert answer["services"] == []


@pytest.mark.slow
def test_a_longer_slo_never_costs_more_and_a_shorter_one_never_less() -> None:
    world = snapshot(search=300.0, ads=200.0)
    assert ask(world, WhatIfChange(slos_ms={"shop/search": 160.0}))["costDelta"] <= 0
    assert ask(world, WhatIfChange(slos_ms={"shop/search": 40.0}))["costDelta"] >= 0


@pytest.mark.slow
@pytest.mark.parametrize("planner", (HETSEV, HPA, MELANGE))
def test_planners_that_no_policy_may_name_can_be_tried_and_are_not_cheaper(planner: str) -> None:
    answer = ask(snapshot(search=300.0, ads=200.0), WhatIfChange(planner=planner))
    assert answer["before"]["unserved"] == 0
    assert answer["costDelta"] >= -1e-9


def test_the_route_takes_every_planner() -> None:
    assert get_args(WhatIfRequest.model_fields["planner"].annotation) == ("", *PLANNERS, *BASELINES)


@pytest.mark.slow
def test_the_snapshot_is_not_touched() -> None:
    world = snapshot(search=300.0)
    before = copy.deepcopy(world)
    change = WhatIfChange(
        gpus={"t4": 3}, slos_ms={"shop/search": 160.0}, rates={"shop/search": RateChange(per_second=10.0)}
    )
    assert apply_change(world, change) != before
    ask(world, change)
    assert world == before


def test_gpus_are_added_on_nodes_like_those_that_are_there() -> None:
    world = apply_change(snapshot(search=300.0), WhatIfChange(gpus={"t4": 3}))
    fresh = [manifest for manifest in world.declared if manifest.name.startswith("what-if-t4")]
    assert [node.spec["gpus"] for node in fresh] == [2, 1]
    assert {world.nodes[node.name].state for node in fresh} == {"reporting"}


@pytest.mark.slow
def test_a_declared_service_joins_and_one_that_is_gone_leaves() -> None:
    world = snapshot(search=300.0, ads=100.0)
    new = next(manifest for manifest in world.declared if manifest.name == "search" and manifest.kind == "Service")
    added = apply_change(world, WhatIfChange(declared=(DeclaredObject("Service", "lab", "twin", dict(new.spec)),)))
    assert added.expected["lab/twin"].rate_per_second == 300.0
    gone = apply_change(world, WhatIfChange(gone=(("Service", "shop", "ads"),)))
    assert "shop/ads" not in gone.expected
    assert ask(world, WhatIfChange(gone=(("Service", "shop", "ads"),)))["costDelta"] <= 0


@pytest.mark.parametrize(
    "change",
    [
        WhatIfChange(gpus={"h100": 1}),
        WhatIfChange(slos_ms={"shop/none": 5.0}),
        WhatIfChange(rates={"shop/none": RateChange(2.0)}),
    ],
)
def test_what_is_not_there_is_refused_by_name(change: WhatIfChange) -> None:
    with pytest.raises(WrongChange, match=r"there is no (GPU type h100|service shop/none)"):
        apply_change(snapshot(search=300.0), change)


def test_the_gpu_type_that_was_meant_is_named() -> None:
    with pytest.raises(WrongChange, match=r"there is no GPU type v100x; did you mean v100\? known: "):
        apply_change(snapshot(search=300.0), WhatIfChange(gpus={"v100x": 1}))


def test_the_slo_of_a_service_that_no_plan_has_now_is_refused_by_name() -> None:
    answer = ask(snapshot(search=300.0), WhatIfChange(), prices_of=("shop/held",))
    assert answer["refused"]
    assert answer["failed"].startswith("the SLO of shop/held cannot be priced, because it is left out of plans")


@pytest.mark.slow
def test_each_slo_has_its_price() -> None:
    answer = ask(snapshot(search=300.0, ads=200.0), WhatIfChange(), prices_of=())
    assert {price["service"] for price in answer["sloPrices"]} == {"shop/search", "shop/ads"}
    assert answer["notPriced"] == 0
    for price in answer["sloPrices"]:
        for name in ("costsPerHour", "shorterAddsPerHour", "longerSavesPerHour"):
            assert price[name]["gpus"] + price[name]["unserved"] >= 0
    assert sum(price["costsPerHour"]["gpus"] for price in answer["sloPrices"]) > 0


@pytest.mark.slow
def test_a_stricter_percentile_never_costs_less_and_is_measured_by_enough_requests_alone() -> None:
    world = snapshot(search=300.0, ads=200.0)
    (price,) = ask(world, WhatIfChange(), prices_of=("shop/search",), measured={"shop/search": 1000.0})["sloPrices"]
    percentiles = price["percentiles"]
    assert [(line["percentile"], line["isMeasured"]) for line in percentiles] == [
        (90.0, True), (95.0, True), (98.0, True), (99.0, True), (99.9, False),
    ]  # fmt: skip
    costs = [line["costsPerHour"]["gpus"] + line["costsPerHour"]["unserved"] for line in percentiles]
    assert costs == sorted(costs)
    assert percentiles[2]["costsPerHour"] == price["costsPerHour"]


@pytest.mark.slow
def test_a_longer_slo_never_costs_more_than_a_shorter_one_in_the_steps_of_its_price() -> None:
    (price,) = ask(snapshot(search=300.0, ads=200.0), WhatIfChange(), prices_of=("shop/search",))["sloPrices"]
    latencies, slo_ms = price["latencies"], price["sloMs"]
    assert [line["sloMs"] / slo_ms for line in latencies] == pytest.approx(
        [0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0]
    )
    costs = [line["costsPerHour"]["gpus"] + line["costsPerHour"]["unserved"] for line in latencies]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1] >= 0
    assert latencies[5]["costsPerHour"] == price["costsPerHour"]
    assert price["shorterAddsPerHour"]["gpus"] == pytest.approx(
        latencies[4]["costsPerHour"]["gpus"] - latencies[5]["costsPerHour"]["gpus"]
    )


def test_the_price_of_an_slo_stands_beside_what_is_paid_now() -> None:
    problem = formulate(snapshot(search=300.0, ads=200.0)).problem
    plan = solve_order(Solve(replace(problem, state=None), 2.0, 5, 0)).plan
    assert plan
    prices = price_slos(replace(problem, state=None), plan, lambda some: None, paid={"shop/search": 2.5})
    assert {price["service"]: price["paidPerHour"] for price in prices} == {"shop/search": 2.5, "shop/ads": 0.0}


def test_a_cheaper_plan_for_a_stricter_percentile_is_the_price_of_the_slo_too() -> None:
    problem = formulate(snapshot(search=300.0, ads=200.0)).problem
    everything = solve_order(Solve(replace(problem, state=None), 2.0, 20, 0)).plan
    assert everything
    nothing = replace(everything, instances=(), unserved=())

    def solve(some: Problem) -> Plan | None:
        """Finds a plan of no cost at 99.9 % and without the service, and none better than the known one otherwise."""
        wanted = some.services.get("shop/search")
        return nothing if wanted is None or wanted.percentile == 99.9 else everything

    (price,) = price_slos(replace(problem, state=None), everything, solve, ("shop/search",))
    assert {line["percentile"]: line["costsPerHour"] for line in price["percentiles"]}[98.0] == price["costsPerHour"]


def surviving(world: Snapshot, name: str) -> DeclaredObject:
    found = next(line for line in world.declared if line.full_name == name and line.kind == "Service")
    return replace(found, spec={**found.spec, "availability": {"surviveNodes": 1}})


@pytest.mark.slow
def test_a_rule_that_copies_which_run_would_go_on_without_is_named() -> None:
    """Only one of two nodes is there, so that nothing can survive its loss."""
    world = snapshot(search=100.0)
    world = replace(world, nodes={**world.nodes, "small-1": NodeStatus("small-1", "lost")})
    question = formulate(world)
    plan = draft_changes(world, question, solve_order(Solve(question.problem, None, 4), alone=True))
    running = replace(world, in_force=hold_back(world, question, plan).desired, target=1)
    answer = ask(running, WhatIfChange(declared=(surviving(running, "shop/search"),)))
    assert [line["service"] for line in answer["notKept"]] == ["shop/search"]
    assert any("too small for its availability" in sentence for sentence in answer["sentences"])
    assert ask(running, WhatIfChange(gpus={"v100": 2}))["notKept"] == []


@pytest.mark.slow
def test_surviving_a_node_costs_a_second_copy() -> None:
    world = snapshot(search=40.0)
    answer = ask(world, WhatIfChange(declared=(surviving(world, "shop/search"),)))
    assert answer["notKept"] == []
    assert answer["costDelta"] > 0
    (service,) = answer["services"]
    assert service["after"]["instances"] > service["before"]["instances"]
