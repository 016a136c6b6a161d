"""A node that is billed whole costs all of its price, whichever of its GPUs may be planned on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from app.control.decide.assigning import assign_plan
from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.formulate.formulate import formulate
from app.control.formulate.pose import pose
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance
from solvers.planning.solve import SolveBudget, solve
from tests.app.control.decide.test_choosing import NODES, PRICES, SERVICES, world

GPUS = 4
Out: TypeAlias = dict[str, Any]  # GPUs by why they are left out
OUT: list[Out] = [{"failed_gpus": (1,)}, {"cordoned_gpus": (0, 1)}, {"draining_gpus": (2,)}, {"resting_gpus": (0,)}]


def priced(pricing: str, purchase: str = "onDemand", out: Out | None = None) -> Snapshot:
    """The world under this pricing; node n1 is paid for as said and has some of its GPUs left out."""
    known = world(SERVICES)
    specs: dict[str, dict[str, Any]] = {"default": {"pricing": pricing}, "n1": {"purchase": purchase, "gpus": GPUS}}
    declared = tuple(replace(item, spec={**item.spec, **specs.get(item.name, {})}) for item in known.declared)
    return replace(known, declared=declared, nodes={**known.nodes, "n1": NodeStatus("n1", "reporting", **(out or {}))})


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize("purchase", ["onDemand", "spot"])
def test_gpus_that_are_left_out_make_a_node_that_is_billed_whole_no_cheaper(purchase: str, out: Out) -> None:
    node = pose(priced("node", purchase, out)).problem.nodes["n1"]
    left = GPUS - len(next(iter(out.values())))
    assert (node.gpu_count, node.pricing) == (left, "node")
    assert node.price_per_hour * left == pytest.approx(PRICES[NODES["n1"]] * GPUS)


@pytest.mark.parametrize("out", OUT)
@pytest.mark.parametrize(("pricing", "purchase"), [("gpu", "onDemand"), ("share", "spot"), ("node", "owned")])
def test_a_gpu_that_is_paid_by_itself_costs_the_same_without_others(pricing: str, purchase: str, out: Out) -> None:
    node = pose(priced(pricing, purchase, out)).problem.nodes["n1"]
    assert (node.price_per_hour, node.pricing) == (PRICES[NODES["n1"]], "gpu")


def pinned(purchase: str, gpu: int) -> Snapshot:
    """The world with one service on n2, whose other GPUs are free; this GPU of n2 is cordoned."""
    known = priced("node")
    specs = {"n2": {"purchase": purchase, "gpus": GPUS}}
    declared = tuple(replace(item, spec={**item.spec, **specs.get(item.name, {})}) for item in known.declared)
    known = replace(known, declared=declared)
    line = Instance("i1", "shop/a", "n2", 0, "v", 1, 0.0, 50, 2.0, 1500.0, SERVICES["shop/a"])
    running = assign_plan(known, formulate(known), Plan((line,)))
    return replace(
        known, in_force=running, nodes={**known.nodes, "n2": NodeStatus("n2", "reporting", cordoned_gpus=(gpu,))}
    )


@pytest.mark.slow
def test_the_rest_of_a_node_costs_nothing_where_a_service_stays_that_pays_for_all_of_it() -> None:
    question = pose(pinned("spot", 0))
    assert [(node, instance.owner) for node, instance in question.pinned] == [("n2", "shop/a")]
    problem = question.problem
    assert (problem.nodes["n2"].pricing, problem.nodes["n2"].price_per_hour) == ("paid", PRICES[NODES["n2"]])
    found = solve(problem, SolveBudget(seconds=None, work=20))
    assert {line.node for line in found.instances} == {"n2"} and not found.unserved
    assert judge(problem, found).is_right
    assert found.certificate and found.certificate.cost.resource < 1e-4
    assert "n2" not in {node.node for node in found.releasable}


@pytest.mark.parametrize(("purchase", "gpu", "pricing"), [("owned", 0, "gpu"), ("spot", 1, "node")])
def test_other_nodes_with_a_cordoned_gpu_are_billed_as_before(purchase: str, gpu: int, pricing: str) -> None:
    assert pose(pinned(purchase, gpu)).problem.nodes["n2"].pricing == pricing
