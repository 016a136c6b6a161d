"""A fleet that has been planned for a minute of virtual time, and a server over its database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from simulation.run import Simulation, open_simulation
from simulation.world import read_documents
from tests.simulation.worlds import CALM_TICK_SECONDS, document, gpu_type, model, node, policy, profile, service
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server

SECONDS = 70.0


@dataclass(frozen=True, slots=True)
class Planned:
    """The server, and the simulation that writes into its database whenever it goes on."""

    server: RunningServer
    simulation: Simulation


@contextmanager
def planned_fleet(postgres: DatabaseServer, mode: str = "auto", seconds: float = SECONDS) -> Iterator[Planned]:
    """Services shop/a, b, c, and lab/x of another tenant, which nothing serves whole."""
    url = postgres.create()
    slo = {"latencyMs": 120, "percentile": 98}
    world = read_documents(
        [
            gpu_type(),
            policy(mode=mode),
            *(node(f"node-{number}") for number in range(2)),
            *(one for name in ("a", "b", "c", "x") for one in (model(name), profile(name))),
            *(service(name, rate) for name, rate in (("a", 200.0), ("b", 150.0), ("c", 100.0))),
            document("Service", "x", {"model": "x", "slo": slo, "ratePerSecond": 9e3}, "lab"),
        ]
    )
    try:
        with open_simulation(url, world) as simulation:
            simulation.advance(seconds, CALM_TICK_SECONDS)
            postgres.stands_at(url, simulation.clock.now())  # or the server would take every node for lost
            rates = {"GPUWRIGHT_RATE_BURST": "100000", "GPUWRIGHT_SIGN_INS_PER_HOUR": "1e6"}
            with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1", **rates) as server:
                yield Planned(server, simulation)
    finally:
        postgres.drop(url)
