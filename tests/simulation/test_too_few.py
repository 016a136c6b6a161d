"""Not enough GPUs for all: guarantees are reclaimed from borrowers, and after a loss the lightest go short."""

from __future__ import annotations

from typing import Any

import pytest

from app.store.fleet import endpoints
from simulation.fleet.fleet import SimulatedFleet
from simulation.fleet.history import count_attained_shares
from simulation.run import Simulation, open_simulation
from simulation.shapes import spike
from simulation.world import read_documents
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile

pytestmark = pytest.mark.slow

CYCLE = 30.0
TICK = 5.0


def service(name: str, rate: float, **more: Any) -> dict[str, Any]:
    tenant, label = name.split("/")
    spec = {"model": label, "slo": {"latencyMs": 120, "percentile": 98}, "ratePerSecond": rate}
    return document("Service", label, spec | more, tenant)


def world(*services: dict[str, Any], nodes: int = 2, tenants: dict[str, float] | None = None) -> Any:
    models = sorted({service["spec"]["model"] for service in services})
    return read_documents(
        [
            gpu_type(),
            policy(sameModelPerGpu=4),
            *(node(f"node-{number}") for number in range(nodes)),
            *(model(name) for name in models),
            *(profile(name) for name in models),
            *(document("Tenant", name, {"guarantee": {"gpus": gpus}}) for name, gpus in (tenants or {}).items()),
            *services,
        ]
    )


def gpus(fleet: SimulatedFleet, tenant: str) -> float:
    """The GPUs, in parts, held by the tenant's copies that serve now."""
    return sum(
        copy.wanted.sm_percent / 100
        for node in fleet.nodes.values()
        for copy in node.serving()
        if copy.service.startswith(f"{tenant}/")
    )


def gpus_alone(fleet: Any, tenant: str) -> int:
    """GPUs on which only this tenant runs: they are its own entirely, whichever part its shapes use."""
    places: dict[str, set[str]] = {}
    for at in fleet.nodes.values():
        for copy in at.alive():
            places.setdefault(copy.gpu, set()).add(copy.wanted.tenant)
    return sum(tenants == {tenant} for tenants in places.values())


def changes_within(simulation: Simulation, seconds: float) -> list[Any]:
    return simulation.history.since(simulation.clock.seconds - seconds)


def test_what_was_borrowed_is_back_within_ten_cycles_of_contention(database_url: str) -> None:
    """lab borrows the GPUs that shop leaves idle; then shop needs more than its guarantee."""
    declared = world(service("lab/x", 1500.0), service("shop/y", 60.0), tenants={"shop": 2.0, "lab": 1.0})
    with open_simulation(
        database_url, declared, {"shop/y": spike(300.0, times=25.0, hold_seconds=10_000.0)}
    ) as simulation:
        simulation.advance(300, TICK)
        assert gpus(simulation.fleet, "lab") > 2.0
        simulation.advance(10 * CYCLE, TICK)
        assert gpus_alone(simulation.fleet, "shop") >= 2
        assert gpus(simulation.fleet, "lab") >= 1.0
        limits = simulation.database.read(endpoints.read_limits)
        assert limits["lab/x"].shed_share > 0
        simulation.advance(10 * CYCLE, TICK)
        assert changes_within(simulation, 5 * CYCLE) == [], "who has its share keeps it"


def after_a_loss(simulation: Simulation) -> dict[str, float]:
    """Two of four nodes are gone; returns the attainment once the new plan has had six cycles."""
    fleet, history = simulation.fleet, simulation.history
    simulation.advance(240, TICK)
    assert all(fleet.ready(name) for name in fleet.declared)
    for name in ("node-0", "node-1"):
        fleet.nodes.pop(name)
        simulation.post.lines.pop(name)
    simulation.advance(120 + 6 * CYCLE, TICK)
    before = history.mark(fleet)
    simulation.advance(5 * CYCLE, TICK)
    return count_attained_shares(before, history.mark(fleet))


LOST = (
    service("shop/vital", 500.0, priority=1000),
    service("shop/usual", 300.0, priority=100),
    service("lab/spare", 1200.0, priority=10),
)


def test_half_the_nodes_lost_cost_only_what_weighs_least_and_nothing_moves_to_and_fro(database_url: str) -> None:
    with open_simulation(database_url, world(*LOST, nodes=4)) as simulation:
        found = after_a_loss(simulation)
        assert min(found["shop/vital"], found["shop/usual"]) >= 0.98
        limits = simulation.database.read(endpoints.read_limits)
        assert limits["lab/spare"].shed_share > 0
        assert limits["lab/spare"].retry_after_seconds == 30
        assert limits["shop/vital"].shed_share == 0
        assert changes_within(simulation, 5 * CYCLE) == []
