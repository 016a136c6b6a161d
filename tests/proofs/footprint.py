"""What an agent with 8 GPUs and 40 instances takes: `python -m tests.proofs.footprint --seconds 60`.

A real server, a real agent process, 40 real copies that idle. Memory, computing time while nothing changes, the time
from its start to its first report, and from an assignment's arrival to the device calls that it asks for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agents.contract.assignments import AssignedGpu, Frame
from agents.devices.simulated.remote import Switches
from app.store.database.database import Database
from simulation.real.open_loop import percentile
from tests.support.agents import cpu_seconds, resident_mib, running_agent
from tests.support.nodes import assigned, machine, ready, running, served
from tests.support.patience import until
from tests.support.postgres import postgres_of_the_wheel
from tests.support.server import RunningServer, running_server

GPUS, PER_GPU = 8, 5
FRAME = Frame(1380, 810, 1380)


@dataclass(frozen=True, slots=True)
class Footprint:
    """As measured."""

    resident_mib: float
    core_percent: float
    cold_start_seconds: float
    calls_p50_ms: float
    calls_p99_ms: float

    def __str__(self) -> str:
        return (
            f"{self.resident_mib:.1f} MiB resident, {self.core_percent:.2f} % of a core, "
            f"{self.cold_start_seconds:.2f} s to the first report, assignment to device calls "
            f"p50 {self.calls_p50_ms:.0f} ms, p99 {self.calls_p99_ms:.0f} ms"
        )


def measure(folder: Path, database_url: str, seconds: float, rounds: int) -> Footprint:
    with running_server(database_url) as server, running_agent(server, folder / "agent", GPUS) as agent:
        database = Database(database_url, pool_size=1)
        instances = [
            served(f"s{number}-{gpu}", gpu=gpu, sm=18, memory=1.5) for gpu in range(GPUS) for number in range(PER_GPU)
        ]
        agent.assign(database, assigned(1, *instances))
        until(lambda: all_ready(server, len(instances)), agent.said_log()[-2000:])
        agent.end()
        begun = time.monotonic()
        agent.start()
        before = reported_at(server)
        until(lambda: reported_at(server) != before, "the first report after a start")
        cold = time.monotonic() - begun
        assert agent.process is not None
        time.sleep(15)
        computed, since = cpu_seconds(agent.process.pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_seconds(agent.process.pid) - computed) / (time.monotonic() - since) * 100
        resident = resident_mib(agent.process.pid)
        database.close()
    calls = device_calls(folder / "calls", rounds)
    return Footprint(resident, share, cold, percentile(calls, 50), percentile(calls, 99))


def all_ready(server: RunningServer, count: int) -> bool:
    state = server.request("GET", "/api/v1/nodes/node-1/state").json
    return bool(sum(copy["stage"] == "ready" for copy in state.get("copies", [])) == count)


def reported_at(server: RunningServer) -> str:
    return str(server.request("GET", "/api/v1/nodes/node-1/state").json.get("receivedAt"))


def device_calls(folder: Path, rounds: int) -> list[float]:
    """In ms, from `offer` to a clock that is set, with 40 copies on 8 GPUs."""
    waits = []
    with machine(folder, ["v100-16gb"] * GPUS) as made, running(made) as node:
        instances = [
            served(f"s{number}-{gpu}", gpu=gpu, sm=18, memory=1.5) for gpu in range(GPUS) for number in range(PER_GPU)
        ]
        node.offer(assigned(1, *instances))
        until(lambda: ready(node, *(one.id for one in instances)), "all run")
        switches = Switches(made.driver)
        uuids = made.uuids
        for generation in range(2, rounds + 2):
            clock = 810 + 15 * (generation % 30)
            gpus = [AssignedGpu(gpu, clock_mhz=Frame(clock, 810, 1380)) for gpu in range(GPUS)]
            begun = time.monotonic()
            node.offer(assigned(generation, *instances, gpus=gpus))
            while any(switches.truth(uuid).settings.locked_mhz != clock for uuid in uuids):
                assert time.monotonic() - begun < 60
            waits.append((time.monotonic() - begun) * 1000)
            time.sleep(0.3)
        switches.close()
    return waits


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rounds", type=int, default=100)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, postgres_of_the_wheel(Path(folder) / "data") as postgres:
        print(measure(Path(folder), postgres.create(), asked.seconds, asked.rounds))
    return 0


if __name__ == "__main__":
    sys.exit(main())
