"""Divisions of fleets that run: what leaves first, and what keeps its GPU whole."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from app.control.answer.division.wire import DivisionWire
from app.control.answer.whatif.change import RateChange, WhatIfChange
from app.control.answer.whatif.question import WhatIf
from app.control.decide.decide import draft_changes, hold_back
from app.control.domain.snapshot import DeclaredObject, Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.orders import Solve, solve_order
from tests.app.control.answer.division.worlds import alone, declare, fleet

pytestmark = pytest.mark.slow
PRICE = 2.8


def run_plan(world: Snapshot) -> Snapshot:
    """Returns the fleet once its plan runs."""
    question = formulate(world)
    decision = draft_changes(world, question, solve_order(Solve(question.problem, None, 4), alone=True))
    return replace(world, in_force=hold_back(world, question, decision).desired, target=1)


def propose(world: Snapshot, change: WhatIfChange | None = None, **more: Any) -> DivisionWire:
    answer: Any = WhatIf(world, change or WhatIfChange(), 60.0, 4, 0, with_division=True, **more).answered()
    division: DivisionWire = answer["division"]
    return division


def extend(world: Snapshot, *lines: DeclaredObject) -> Snapshot:
    return replace(world, declared=(*world.declared, *lines))


def test_an_idle_node_is_divided_and_nothing_has_to_leave_it() -> None:
    world = run_plan(fleet(alone(3), nodes=4))
    found = propose(world)
    (step,) = found["steps"]
    assert (found["undividedPerHour"], found["dividedPerHour"]) == pytest.approx((3 * PRICE, PRICE))
    assert step["node"] not in {node for node, wanted in world.in_force.items() if wanted.instances}
    assert (step["drained"], step["lacking"], step["isKnown"]) == ([], [], True)


def test_a_full_fleet_says_what_leaves_a_node_and_what_nothing_would_carry() -> None:
    found = propose(run_plan(fleet(alone(3), nodes=3)))
    (step,) = found["steps"]
    assert [line["copies"] for line in step["drained"]] == [1]
    assert [line["ratePerSecond"] for line in step["lacking"]] == pytest.approx([1.0])
    assert "nothing would carry 1 a second of shop/s" in found["sentences"][-1]
    assert "add a GPU before" in found["sentences"][-1]


def test_a_division_of_a_changed_world_is_for_its_load() -> None:
    world = run_plan(fleet(alone(3), nodes=4))
    more = propose(world, WhatIfChange(rates={"shop/s0": RateChange(times=300.0)}))
    assert more["dividedPerHour"] == pytest.approx(PRICE)
    copies = {service["service"]: service["copies"] for service in more["services"]}
    assert copies["shop/s0"] > 1, "one device does not carry 300 requests a second; there is room for several"
    most = propose(world, WhatIfChange(rates={"shop/s0": RateChange(times=1000.0)}))
    assert most["dividedPerHour"] == pytest.approx(2 * PRICE)


def test_a_job_keeps_its_node_whole() -> None:
    world = fleet(alone(2), nodes=3)
    profile = {"stepsPerSecond": {"10": 1.0, "100": 8.0}, "memoryGib": 4}
    job = DeclaredObject(
        "Job", "shop", "train", {"type": "training", "steps": 1e6, "profiles": {"a100": profile}, "maxPricePerHour": 9}
    )
    world = run_plan(extend(world, job))
    busy = {node for node, wanted in world.in_force.items() if any(line.job for line in wanted.instances)}
    assert len(busy) == 1
    found = propose(world)
    assert {step["node"] for step in found["steps"]}.isdisjoint(busy)
    assert [line["reason"] for line in found["leftOut"]] == ["a job runs there"]


def test_copies_that_must_survive_a_node_stand_on_two_divided_nodes() -> None:
    spec = {"minInstances": 2, "availability": {"spread": "node", "surviveNodes": 1}}
    found = propose(fleet(alone(4, **spec), nodes=8))
    assert found["undividedPerHour"] == pytest.approx(8 * PRICE)
    assert found["dividedPerHour"] == pytest.approx(2 * PRICE)
    assert found["bound"] == pytest.approx(2 * PRICE)
    assert len(found["steps"]) == 2, "four copies on devices of each"


def test_nodes_that_are_no_a100_are_left_out_with_the_reason() -> None:
    world = fleet(alone(2), nodes=2)
    other = declare("GpuType", "t4", memoryGib=16, smCount=40, pricePerHour=0.4, idleW=20, maxW=70, clocksMhz=[1590])
    world = extend(world, other, declare("Node", "small", gpuType="t4", gpus=1, cpuCores=8, memoryGib=64))
    world = replace(world, nodes={**world.nodes, "small": replace(world.nodes["n0"], name="small")})
    found = propose(world)
    assert found["leftOut"] == [{"nodes": 1, "reason": "a t4 is no GPU that can be divided"}]
    assert len(found["steps"]) == 1
