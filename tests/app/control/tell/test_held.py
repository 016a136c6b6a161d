"""GPUs that hold copies of services are priced by what nodes report, and not by the plan."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from agents.contract.reports import Report
from app.control.domain.snapshot import DeclaredObject, NodeStatus, Snapshot
from app.control.tell.held import held_per_hour
from app.nodes.intake import Intake
from app.store.database.database import Database
from app.store.fleet import observed
from app.store.fleet.observed import HeldGpu
from tests.simulation.worlds import gpu_type, node
from tests.support.reports import instance, report

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HELD = (HeldGpu("n1", 0, 50.0, 4.0), HeldGpu("n1", 1, 20.0, 12.0), HeldGpu("n2", 0, 100.0, 4.0))


def snapshot(**states: str) -> Snapshot:
    made = [gpu_type(price=1.2), node("n1"), node("n2")]
    declared = tuple(DeclaredObject(item["kind"], "", item["metadata"]["name"], item["spec"]) for item in made)
    names = {"n1": "reporting", "n2": "reporting"} | states
    return Snapshot(NOW, 1, declared, {name: NodeStatus(name, state) for name, state in names.items()})  # type: ignore


def priced(of: Snapshot, pricing: str) -> Snapshot:
    policy = DeclaredObject("Policy", "", "default", {"pricing": pricing})
    return replace(of, declared=(*of.declared, policy))


@pytest.mark.parametrize(
    ("pricing", "states", "price"),
    [
        ("gpu", {}, 3.6),
        ("share", {}, 1.2 * (0.5 + 0.75 + 1.0)),
        ("gpu", {"n2": "silent"}, 3.6),
        ("gpu", {"n2": "lost"}, 2.4),
    ],
)
def test_gpus_are_priced_as_the_policy_says_until_their_node_is_lost(
    pricing: str, states: dict[str, str], price: float
) -> None:
    assert held_per_hour(priced(snapshot(**states), pricing), HELD) == pytest.approx(price)


@pytest.mark.parametrize(
    ("purchase", "pricing", "price"),
    [
        ("onDemand", "node", 2 * 1.2 + 2 * 1.2),
        ("spot", "node", 2 * 1.2 + 2 * 1.2),
        ("owned", "node", 1.2 + 2 * 1.2),
        ("reserved", "node", 1.2 + 2 * 1.2),
        ("onDemand", "gpu", 1.2 + 1.2),
        ("onDemand", "share", 1.2 * (0.5 + 1.0)),
    ],
)
def test_one_gpu_holds_all_of_a_rented_node_where_the_policy_prices_nodes(
    purchase: str, pricing: str, price: float
) -> None:
    known = snapshot()
    declared = tuple(
        replace(item, spec={**item.spec, "purchase": purchase}) if item.name == "n1" else item
        for item in known.declared
    )
    held = (HELD[0], HELD[2])
    assert held_per_hour(priced(replace(known, declared=declared), pricing), held) == pytest.approx(price)


def test_a_gpu_that_no_longer_has_a_price_costs_nothing() -> None:
    assert held_per_hour(snapshot(), [HeldGpu("gone", 0, 50.0, 4.0)]) == 0.0


def test_a_gpu_is_held_by_copies_of_services_that_are_not_gone(database_url: str) -> None:
    database = Database(database_url, pool_size=2, direct=True)
    copies = [
        {"id": "a.1", "instance": "a", "gpu": 0, "stage": "draining", "smPercent": 30, "memoryGib": 2},
        {"id": "a.2", "instance": "a", "gpu": 0, "stage": "starting", "smPercent": 40, "memoryGib": 3},
        {"id": "b.1", "instance": "b", "gpu": 1, "stage": "gone", "smPercent": 30, "memoryGib": 2},
        {"id": "j.1", "instance": "j", "gpu": 2, "stage": "ready", "smPercent": 30, "memoryGib": 2},
    ]
    lines = [instance("a"), instance("b"), instance("j", service="", job="train", requests=0, latencyCounts=[])]
    sent = report("n1", copies=copies, instances=lines)
    Intake(database, timedelta(days=1)).keep([msgspec.convert(sent, Report)], [msgspec.json.encode(sent)])
    assert database.read(observed.held_gpus) == [HeldGpu("n1", 0, 70.0, 5.0)]
    database.close()
