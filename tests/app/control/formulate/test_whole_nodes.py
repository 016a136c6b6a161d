"""A node that is billed whole costs all of its price, whichever of its GPUs may be planned on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from app.control.domain.snapshot import NodeStatus, Snapshot
from app.control.formulate.pose import pose
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
