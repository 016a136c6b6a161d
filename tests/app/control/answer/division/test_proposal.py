"""A proposed division is the cheapest by brute force, serves all, and is none where shares of GPUs do as well."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest

from app.control.answer.division.wire import DivisionWire
from app.control.answer.whatif.change import WhatIfChange, apply_change
from app.control.answer.whatif.question import WhatIf
from app.control.domain.snapshot import DeclaredObject, NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.orders import Solve, solve_order
from app.manifests.reader import Document
from app.manifests.validate import validate
from solvers.planning.judge import judge
from tests.app.control.answer.division.cheapest import WAYS, Need, count_gpus, fits, read
from tests.app.control.answer.division.worlds import LATENCY, alone, declare, fleet

pytestmark = pytest.mark.slow
PRICE = 2.8
CURVE = {int(percent): value for percent, value in LATENCY["4"].items()}


def propose(world: Snapshot, change: WhatIfChange | None = None, work: int = 4) -> DivisionWire:
    answer: Any = WhatIf(world, change or WhatIfChange(), 60.0, work, 0, with_division=True).answered()
    division: DivisionWire = answer["division"]
    return division


@pytest.mark.parametrize("seed", range(6))
def test_the_proposal_is_the_cheapest_division_by_brute_force(seed: int) -> None:
    dice = random.Random(seed)
    nodes = 8 if seed >= 4 else dice.randint(3, 5)
    needs, specs = [], {}
    for at in range(nodes):
        slo_ms, memory_gib = draw_slo(dice), dice.choice([2.0, 4.0, 8.0, 15.0, 30.0])
        needs.append(Need(memory_gib, slo_ms, CURVE))
        specs[f"s{at}"] = {
            "isolation": "dedicated", "slo": {"latencyMs": slo_ms, "percentile": 98}, "ratePerSecond": 0.2,
            "profile": {"memoryGib": {"4": memory_gib}},
        }  # fmt: skip
    found = propose(fleet(specs, nodes=nodes))
    least = PRICE * count_gpus(needs, nodes)
    assert found["undividedPerHour"] == pytest.approx(PRICE * count_gpus(needs, nodes, ("whole",)))
    assert found["bound"] is not None
    assert found["bound"] <= least * (1 + 1e-9), "no division is cheaper than the bound"
    assert least * (1 - 1e-9) <= found["dividedPerHour"] <= found["bound"] * (1 + (found["gap"] or 0.0)) + 1e-9
    assert found["dividedPerHour"] == pytest.approx(least)


def draw_slo(dice: random.Random) -> float:
    """Draws an SLO that each device clearly keeps or clearly breaks."""
    times = [1.05 * read(CURVE, 100 * pieces[0].share) for pieces in WAYS.values()]
    while True:
        slo_ms = dice.uniform(12.0, 120.0)
        if not any(0.97 < time / slo_ms < 1.1 for time in times):
            return slo_ms


def test_services_that_may_share_gpus_gain_nothing_and_the_answer_says_where_devices_pay() -> None:
    found = propose(fleet({f"s{at}": {} for at in range(8)}))
    assert (found["steps"], found["savesPerHour"], found["servesMorePerSecond"]) == ([], 0.0, 0.0)
    first, second, *_ = found["sentences"]
    assert first.startswith("dividing saves nothing: undivided the fleet costs 2.8 an hour; no division of these nodes")
    assert "isolation: dedicated" in second
    assert "0 services of 8 must be alone" in second


def test_services_that_must_be_alone_share_one_gpu_as_devices() -> None:
    found = propose(fleet(alone(8)))
    assert (found["undividedPerHour"], found["dividedPerHour"]) == pytest.approx((8 * PRICE, 2 * PRICE))
    (step,) = found["steps"]
    assert (step["profile"], step["devices"], step["gpuType"]) == ("1g.5gb", 7, "a100-1g-5gb")
    assert {service["reason"] for service in found["services"]} == {"it must be alone, and a device is enough for it"}


def test_all_gpus_of_a_node_are_divided_alike_and_each_is_paid_whole() -> None:
    found = propose(fleet(alone(8), nodes=1, gpus=8, pricing="gpu"))
    (step,) = found["steps"]
    assert (step["gpus"], step["devicesPerGpu"], step["devices"]) == (8, 7, 56)
    assert found["dividedPerHour"] == pytest.approx(2 * PRICE), "7 devices of one GPU, and one of another"
    assert found["bound"] == pytest.approx(2 * PRICE)


def test_more_copies_of_a_model_than_a_gpu_may_hold_pay() -> None:
    others = {f"s{at}": {"model": "m-s0"} for at in range(1, 6)}
    found = propose(fleet({"s0": {}, **others}))
    assert (found["undividedPerHour"], found["dividedPerHour"]) == pytest.approx((6 * PRICE, PRICE))
    reasons = {service["reason"] for service in found["services"]}
    assert reasons == {"a GPU holds more copies of m-s0 than sameModelPerGpu 1"}


def test_other_accounts_than_money_are_named_and_shares_are_paid_by_devices() -> None:
    power = {"powerW": {"10": 20, "100": 200}}
    by_energy = propose(fleet(alone(3, profile=power), nodes=3, objective="energy"))
    assert "an hour by the Policy's objective" in by_energy["sentences"][0]
    shared = propose(fleet(alone(3), nodes=3, pricing="share"))
    assert shared["dividedPerHour"] == pytest.approx(3 * PRICE / 7)


def test_the_policys_planner_proposes_too() -> None:
    found = propose(fleet(alone(4), nodes=4), WhatIfChange(planner="reserve-and-pack"))
    assert found["dividedPerHour"] <= found["undividedPerHour"]


def test_neighbours_that_slow_each_other_pay() -> None:
    pressing = {"pressure": 1.0, "sensitivity": 3.0}
    found = propose(
        fleet({f"s{at}": {"profile": pressing, "slo": {"latencyMs": 62, "percentile": 98}} for at in range(6)})
    )
    assert found["savesPerHour"] > 0
    assert {service["reason"] for service in found["services"]} == {
        "neighbours on other devices of the GPU do not slow it"
    }


def test_what_must_stay_whole_stays_whole() -> None:
    world = fleet(alone(3, gpuTypes=["a100"]))
    found = propose(world)
    assert found["steps"] == []
    assert any("use MIG devices only if gpuTypes names them" in sentence for sentence in found["sentences"])
    capped = propose(replace_nodes(world, capW=300))
    reasons = [line["reason"] for line in capped["leftOut"]]
    assert reasons == ["its GPUs have capW, and MIG devices share their GPU's watts"]
    assert capped["sentences"][0].startswith("no GPU of this fleet can be divided")


def replace_nodes(world: Snapshot, **more: Any) -> Snapshot:
    lines = (
        declare("Node", line.name, **{**line.spec, **more}) if line.kind == "Node" else line for line in world.declared
    )
    return replace(world, declared=tuple(lines))


def test_the_manifests_of_a_proposal_are_valid_and_planned_as_proposed() -> None:
    world = fleet(alone(8))
    found = propose(world)
    documents = [*found["manifests"], *[step["manifest"] for step in found["steps"]]]
    written: Any = json.loads(json.dumps(documents))
    manifests, faults = validate([Document("proposal", document) for document in written])
    assert faults == []
    lines = [DeclaredObject(str(known.kind), known.tenant, known.name, known.spec) for known in manifests]
    changed = apply_change(world, WhatIfChange(tuple(lines)))
    problem = formulate(changed).problem
    plan = solve_order(Solve(problem, 60.0, 4)).plan
    assert plan is not None
    verdict = judge(problem, plan)
    assert (verdict.violations, plan.unserved) == ((), ())
    assert verdict.cost.resource == pytest.approx(found["dividedPerHour"])


def test_a_fleet_that_is_too_small_serves_more_when_divided() -> None:
    found = propose(fleet(alone(4), nodes=2))
    assert found["servesMorePerSecond"] == pytest.approx(2.0)
    assert found["bound"] is None
    assert "serves 2 requests a second more" in found["sentences"][0]


def test_a_node_that_is_not_all_there_is_not_divided() -> None:
    world = fleet(alone(3), nodes=1, gpus=4)
    ill = {"n0": NodeStatus("n0", "reporting", failed_gpus=(3,))}
    found = propose(replace(world, nodes=ill))
    assert [line["reason"] for line in found["leftOut"]] == ["not all of its GPUs can be emptied now"]


def test_fits_knows_what_it_judges() -> None:
    assert fits(Need(4.0, 40.0, CURVE), WAYS["1g.5gb"][0])
    assert not fits(Need(5.0, 40.0, CURVE), WAYS["1g.5gb"][0])
    assert not fits(Need(4.0, 30.0, CURVE), WAYS["1g.5gb"][0])
