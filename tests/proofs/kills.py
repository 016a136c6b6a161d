"""Agent, sidecar and both die in the midst of hand-overs, under a load through HAProxy; nothing else may.

A real server, the agent's program on simulated GPUs, real copies, real HAProxy and its sidecar, in a folder. What dies
is started again at once, and what the assignment says must come to be, with nothing left over.
"""

from __future__ import annotations

import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.contract.assignments import AssignedInstance
from agents.devices.simulated.remote import connect
from agents.host.local_socket import NotRunning, ask
from agents.node.adoption import instance_of
from agents.runtime import proc
from agents.talk.copy_client import CopyPlace, TcpCopyClient
from agents.templates import Probe
from app.store.database.database import Database
from simulation.real.open_loop import percentile
from tests.proofs.leftovers import left_over, unaccounted
from tests.support.agents import AgentProcess
from tests.support.haproxy import Gateway, running_gateway
from tests.support.load import Sample, steady_load
from tests.support.nodes import assigned, served
from tests.support.patience import patience, until
from tests.support.server import RunningServer

LOOK_SECONDS = 0.05
CHANGED, OTHER = "search-1", "images-1"
HEALTHZ = Probe("GET", "/healthz", seconds=2.0)


@dataclass(slots=True)
class Seen:
    """What came of it."""

    deaths: Counter[str] = field(default_factory=Counter)
    reloads: int = 0
    recoveries: list[float] = field(default_factory=list)  # seconds from a restart to what is assigned
    broken: list[str] = field(default_factory=list)  # what must hold at every moment and did not
    copies: set[str] = field(default_factory=set)  # that ever ran
    samples: list[Sample] = field(default_factory=list)

    @property
    def failed(self) -> list[Sample]:
        return [sample for sample in self.samples if sample.failed]

    def __str__(self) -> str:
        took = sorted(self.recoveries)
        spread = ", ".join(f"p{percent} {percentile(took, percent):.2f}" for percent in (50, 90, 99, 100))
        dead = ", ".join(f"{count} of {who}" for who, count in sorted(self.deaths.items()))
        return (
            f"deaths: {dead}; {self.reloads} reloads of HAProxy; {len(self.copies)} copies ran; "
            f"{len(self.samples)} requests, {len(self.failed)} failed; broken at any moment: {len(self.broken)}; "
            f"seconds from restart to the assignment ({len(took)}): {spread}"
        )


class MortalAgent(AgentProcess):
    """The agent's program, which dies where it is ordered to."""

    contact_seconds = 60.0

    @property
    def orders(self) -> Path:
        return self.folder.parent / "orders"

    def command(self, *words: str) -> list[str]:
        python, _, _, *rest = super().command(*words)
        return [python, "-m", "tests.proofs.mortal", str(self.orders), str(self.contact_seconds), *rest]

    def order(self, number: int, when: str) -> None:
        """Whole or not at all."""
        fresh = self.orders.with_suffix(".new")
        fresh.write_text(f"{number} {when}")
        fresh.replace(self.orders)

    def is_dead(self) -> bool:
        return self.process is None or self.process.poll() is not None


class Site:
    """One node with all that is around it."""

    def __init__(self, agent: MortalAgent, gateway: Gateway, database: Database) -> None:
        self.agent = agent
        self.gateway = gateway
        self.database = database
        self.seen = Seen()
        self.generation = 0
        self.wanted: tuple[AssignedInstance, ...] = ()
        self._restarted_at = 0.0
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def start_agent(self) -> None:
        self._restarted_at = time.monotonic()
        self.agent.start("--gateway", self.gateway.listen)

    def assign(self, **shares: int) -> None:
        """SM% of search and images."""
        self.generation += 1
        instances = [served(f"{service}-1", sm=share, memory=1.0) for service, share in shares.items()]
        self.wanted = tuple(instances)
        self.agent.assign(self.database, assigned(self.generation, *self.wanted))

    def status(self) -> dict[str, Any]:
        """Empty while there is no agent."""
        try:
            found: dict[str, Any] = ask(self.agent.folder, "status")
            return found
        except (NotRunning, ValueError):
            return {}

    def is_reached(self) -> bool:
        said = self.status()
        found = sorted((one["instance"], one.get("smPercent"), one["stage"]) for one in said.get("copies", []))
        wanted = sorted((one.id, one.sm_percent, "ready") for one in self.wanted)
        return bool(said) and said["generation"] == self.generation and found == wanted

    def reach(self) -> None:
        """Wait for what is assigned; how long that took from the last restart is kept."""
        try:
            until(self.is_reached, "what is assigned")
        except AssertionError:
            log = self.agent.said_log()[-3000:]
            raise AssertionError(f"not reached: {self.wanted}; {self.status()}; agent: {log}") from None
        if self._restarted_at:
            self.seen.recoveries.append(time.monotonic() - self._restarted_at)
            self._restarted_at = 0.0
        faults: list[str] = []

        def clean() -> bool:
            faults[:] = self.faults()
            return not faults

        with suppress(AssertionError):
            until(clean, "nothing is left over")  # HAProxy deletes a server once nobody is connected to it
        assert not faults, faults

    def faults(self) -> list[str]:
        """What differs from: one ready copy of each instance, limited, routed, and nothing and nobody else."""
        known = [copy["id"] for copy in self.status().get("copies", [])]
        return left_over(self.agent, self.gateway, self.wanted, known)

    def usage_faults(self) -> list[str]:
        """What is not accounted for of all that ever ran."""
        return unaccounted(self.database, {one.copy for one in self.agent.runtime.find()}, self.seen.copies)

    # What must hold at every moment.

    def watch(self) -> None:
        self._watching.start()

    def stop(self) -> None:
        self._over.set()
        self._watching.join(patience())

    def _watch(self) -> None:
        device, mps = connect(self.agent.folder / "simulated")
        gpu = device.gpus()[0].uuid
        while not self._over.wait(LOOK_SECONDS):
            ready = set()
            for running in self.agent.runtime.find():
                self.seen.copies.add(running.copy)
                port = proc.read_variable(running.pid, "GPUWRIGHT_PORT")
                if port and TcpCopyClient().ask(CopyPlace(int(port)), HEALTHZ).ok:
                    ready.add(instance_of(running.copy))
            if ready != {CHANGED, OTHER}:
                self.seen.broken.append(f"{time.monotonic()}: ready {ready}")
            before = mps.clients(gpu)
            holders = {process.pid for process in device.processes(gpu)}
            if stray := holders - before - mps.clients(gpu):
                self.seen.broken.append(f"{time.monotonic()}: without a limit {stray}")
        device.close()

    # Deaths.

    def kill_agent(self) -> None:
        self.agent.end(signal.SIGKILL)
        self.seen.deaths["agent"] += 1

    def kill_sidecar(self) -> None:
        self.gateway.kill_sidecar()
        self.seen.deaths["sidecar"] += 1


@contextmanager
def site(server: RunningServer, folder: Path, rate: float = 40.0) -> Iterator[Site]:
    """Both instances ready, under load and watched; the load has ended, and `seen.samples` are there, afterwards."""
    database = Database(server.database_url, pool_size=2)
    with ExitStack() as stack:
        stack.callback(database.close)
        gateway = stack.enter_context(running_gateway(folder / "gateway"))
        agent = MortalAgent(server, folder / "agent", gpus=1)
        stack.callback(agent.close)
        made = Site(agent, gateway, database)
        made.assign(search=30, images=30)
        made.start_agent()
        made.reach()
        made.seen.recoveries.clear()
        loads = [
            stack.enter_context(
                steady_load(
                    gateway.port, f"/shop/{service}/v1/models/resnet:infer", rate_per_second=rate, method="POST",
                    body="{}",
                )
            )
            for service in ("search", "images")
        ]  # fmt: skip
        made.watch()
        try:
            yield made
        finally:
            made.stop()
        for load in loads:
            made.seen.samples += load.stop().samples


def at_every_step(made: Site, steps: Sequence[tuple[int, str]]) -> None:
    """The agent dies at the n-th line of its journal after a new share was assigned."""
    share = 30
    for number, when in steps:
        share = 80 - share
        made.agent.order(number, when)
        made.assign(search=share, images=30)
        reached_at = 0.0

        def dead_or_done() -> bool:
            nonlocal reached_at
            if made.agent.is_dead():
                return True
            if not reached_at and made.is_reached():
                reached_at = time.monotonic()
            # The last lines are written once the control plane has heard of it all.
            return bool(reached_at) and time.monotonic() - reached_at > 2.5

        until(dead_or_done, f"{number} {when}")
        if made.agent.is_dead():
            made.seen.deaths[f"agent at line {number:2d} {when}"] += 1
            made.start_agent()
        else:
            made.agent.orders.unlink()
        made.reach()


def at_random(made: Site, rounds: int, chance: random.Random) -> None:
    """Agent, sidecar or both die at any moment of a hand-over, some twice; HAProxy is reloaded at some."""
    shares = {"search": 30, "images": 30}
    for _ in range(rounds):
        chosen = chance.choice((["search"], ["images"], ["search", "images"]))
        shares |= {service: 80 - shares[service] for service in chosen}
        made.assign(**shares)
        deaths = chance.choice((1, 1, 2))
        for _ in range(deaths):
            time.sleep(chance.uniform(0.0, 1.6))
            who = chance.choice(("agent", "agent", "sidecar", "both"))
            if chance.random() < 0.3:
                made.gateway.reload()
                made.seen.reloads += 1
                time.sleep(chance.uniform(0.0, 0.1))
            if who != "agent":
                made.kill_sidecar()
            if who != "sidecar":
                made.kill_agent()
            if who != "agent":
                made.gateway.start_sidecar()
            if who != "sidecar":
                made.start_agent()
        made.reach()
