"""The campaign's fleet: six nodes of two GPUs, two tenants with three services each, and a job that may be stopped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.manifests.offline import DeclaredFiles
from simulation.clock import Clock
from simulation.fleet_truth import FleetTruth
from simulation.run import Simulation, open_simulation
from simulation.world import read_documents
from solvers.planning.problem import Node
from tests.proofs.campaign.disk import PowerSafeDisk, in_use
from tests.proofs.campaign.gateway import CampaignGateway
from tests.proofs.campaign.node import CampaignNode
from tests.simulation.worlds import document, gpu_type, model, node, policy, profile

NODES = 6
VARIANTS = ("fp16", "int8")
RATES = {"shop": (200.0, 120.0, 60.0), "media": (150.0, 90.0, 40.0)}
JOB = {
    "type": "training",
    "steps": 10**9,
    "preemptible": True,
    "maxPricePerHour": 5,  # a GPU of its own where services leave no room
    "profiles": {"v100-16gb": {"stepsPerSecond": {"20": 1.1, "100": 3.4}, "memoryGib": 9}},
}


def documents() -> list[dict[str, Any]]:
    found = [gpu_type(), policy(mode="auto"), *(node(f"node-{number}") for number in range(NODES))]
    for tenant, rates in RATES.items():
        for number, rate in enumerate(rates):
            name = f"{tenant}-{number}"
            slo = {"latencyMs": 120, "percentile": 98}
            spec = {"model": name, "slo": slo, "ratePerSecond": rate, "variants": [VARIANTS[0]]}
            found += [*_model_of_two(name), document("Service", name, spec, tenant)]
    return [*found, document("Job", "media-training", JOB, "media")]


def _model_of_two(name: str) -> list[dict[str, Any]]:
    """Returns a model with two variants that differ in their name alone, and their profiles."""
    found = model(name)
    found["spec"]["variants"] = [found["spec"]["variants"][0] | {"name": variant} for variant in VARIANTS]
    profiles = [profile(name, startSeconds=10, variant=variant) for variant in VARIANTS]
    for made, variant in zip(profiles, VARIANTS, strict=True):
        made["metadata"]["name"] = f"{name}-{variant}"
    return [found, *profiles]


def world() -> DeclaredFiles:
    return read_documents(documents())


@contextmanager
def campaign_fleet(
    database_url: str, folder: Path, seed: int, declared: DeclaredFiles | None = None
) -> Iterator[tuple[Simulation, CampaignGateway, PowerSafeDisk]]:
    """Yields the fleet with its planner, its gateway and its disk; of these files, where they are given."""
    gateway, disk = CampaignGateway(), PowerSafeDisk()

    def make_node(planned: Node, truth: FleetTruth, clock: Clock, _: int) -> CampaignNode:
        place = folder / planned.name
        return CampaignNode(planned.name, planned.gpu_type, planned.gpu_count, truth, clock, place, disk, gateway)

    with (
        in_use(disk),
        open_simulation(database_url, declared or world(), seed=seed, make_node=make_node) as simulation,
    ):
        yield simulation, gateway, disk
