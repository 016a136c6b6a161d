"""Measures how many node reports a second the API takes, and how soon a decision reaches its agent."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment, Frame
from app.store.database.database import Database
from app.store.fleet import assignments
from cli.bench.generators import generating, merge, split_order
from cli.bench.load import UNANSWERED
from cli.bench.reports import GPUS, INSTANCES, node_name
from cli.bench.system import Say, System, make_tokens, own_system
from cli.exits import Failed
from simulation.real.open_loop import percentile

DECISIONS_PER_SECOND = 2.0
NODES_PER_DECISION = 10
APPLY_AT_ONCE = 2000
NICE = 10  # of the processes that load a server under measurement


@dataclass(frozen=True, slots=True)
class ApiLoad:
    """The load to measure."""

    agents: int
    seconds: float
    rate: float
    servers: int = 1
    kills: bool = False  # one of several servers, halfway


@dataclass(slots=True)
class Decisions:
    """Writes assignments as the planner does, and remembers when each was decided."""

    database: Database
    agents: int
    epoch: int = 1
    decided: dict[int, float] = field(default_factory=dict)  # version -> monotonic time before its transaction
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        generation = 0
        due = time.monotonic()
        while not self._stop.wait(max(0.0, due - time.monotonic())):
            generation += 1
            first = generation * NODES_PER_DECISION
            nodes = [node_name((first + n) % self.agents) for n in range(min(self.agents, NODES_PER_DECISION))]
            self.decide(nodes, generation, due)
            due += 1 / DECISIONS_PER_SECOND

    def decide(self, nodes: Sequence[str], generation: int, due: float) -> None:
        drafts = [
            assignments.AssignmentDraft(node, generation, body_of(node, self.epoch, generation)) for node in nodes
        ]
        taken = self.database.write(lambda connection: assignments.write(connection, self.epoch, drafts))
        for version in taken.values():
            self.decided[version] = due

    def stop(self) -> None:
        self._stop.set()


def body_of(node: str, epoch: int, generation: int) -> Callable[[int], str]:
    """Returns what makes a full node's assignment, once its version is known."""

    def body(version: int) -> str:
        instances = [
            AssignedInstance(
                id=f"shop-search-{number:02d}-7c9f4d",
                gpu=number * GPUS // INSTANCES,
                tenant="shop",
                service=f"search-{number:02d}",
                model="resnet50",
                variant="fp16",
                template="gpuwright-serve",
                args={"model": "resnet50"},
                sm_percent=30.0,
                memory_gib=4.5,
                batch=Frame(8.0, 1.0, 16.0),
                rate_per_second=120.0,
            )
            for number in range(INSTANCES)
        ]
        whole = Assignment(node, version, epoch, generation, plan="bench", instances=tuple(instances))
        return msgspec.json.encode(whole).decode()

    return body


def measure(order: ApiLoad, say: Say) -> dict[str, Any]:
    """Measures a single rate, on a system of its own."""
    with own_system(say, order.servers) as system:
        tokens = declare_nodes(system, order.agents, say)
        return load(system, tokens, order, say)


def search(order: ApiLoad, p99_ms: float, say: Say) -> dict[str, Any]:
    """Finds the largest rate, to about 5 %, that answers 99 % within `p99_ms` and fails none."""
    with own_system(say, order.servers) as system:
        tokens = declare_nodes(system, order.agents, say)
        good: dict[str, Any] | None = None
        low, high = 0.0, 0.0
        rate = 500.0
        while not high or high - low > 0.05 * high:
            found = load(system, tokens, replace(order, rate=rate), say)
            if found["p99_ms"] <= p99_ms and not found["errors"]:
                low, good = rate, found
            else:
                high = rate
            rate = (low + high) / 2 if high else rate * 2
            if rate < 20:
                break
        if good is None:
            raise Failed(f"no rate kept p99 under {p99_ms:g} ms", 1)
        return good


def declare_nodes(system: System, agents: int, say: Say) -> list[str]:
    """Declares node objects, and returns a token for each."""
    say(f"declaring {agents} nodes")
    gpu = {"memoryGib": 80, "smCount": 108, "pricePerHour": 2, "idleW": 50, "maxW": 400, "clocksMhz": [1410]}
    documents = [document("GpuType", "bench-80gb", gpu)]
    spec = {"gpuType": "bench-80gb", "gpus": GPUS, "cpuCores": 96, "memoryGib": 1024}
    documents += [document("Node", node_name(number), spec) for number in range(agents)]
    for at in range(0, len(documents), APPLY_AT_ONCE):
        system.request("POST", "/api/v1/apply", documents[at : at + APPLY_AT_ONCE])
    return make_tokens(system.database_url, [("node", node_name(number)) for number in range(agents)])


def document(kind: str, name: str, spec: dict[str, Any], tenant: str = "") -> dict[str, Any]:
    metadata = {"name": name, "tenant": tenant} if tenant else {"name": name}
    return {"apiVersion": "gpuwright/v1", "kind": kind, "metadata": metadata, "spec": spec}


def load(system: System, tokens: Sequence[str], order: ApiLoad, say: Say, *, nice: int = 0) -> dict[str, Any]:
    """Measures reports at a fixed rate, while every agent holds a poll and decisions are written."""
    say(f"{order.agents} agents, {order.rate:g} reports/s for {order.seconds:g} s")
    database = Database(system.database_url, pool_size=1, direct=True)
    # Above the epochs of earlier runs: each of those was at most a version of its time.
    epoch = database.read(lambda c: max([0, *(version for _, version, _ in assignments.newer_than(c, 0, ()))])) + 1
    decisions = Decisions(database, order.agents, epoch)
    writer = threading.Thread(target=decisions.run, daemon=True)
    whole = {"host": system.host, "ports": system.ports, "tokens": list(tokens), "rate": order.rate}
    whole |= {"seconds": order.seconds, "killed": system.server_pids[-1] if order.kills else 0}
    try:
        with ExitStack() as running:
            generators = [running.enter_context(generating(part, nice)) for part in split_order(whole)]
            for generator in generators:
                generator.await_warm()
            before = system.cpu_seconds()
            writer.start()
            found = merge([generator.collect() for generator in generators])
            after = system.cpu_seconds()
    finally:
        decisions.stop()
        if writer.ident:
            writer.join()
        database.close()
    result = summarise(found, decisions.decided)
    if order.kills:
        result |= {"moved_agents": found["moved"], "back_after_seconds": round(found["back_seconds"], 1)}
        result |= {"unanswered_reports": found["errors"][UNANSWERED]}
    count = max(1, len(found["latencies_ms"]))
    spent = {name: round((after[name] - before[name]) / count * 1e6) for name in after}
    say(f"  {json.dumps(result)}; processor time a report in us: {spent}; generator {found['cpu_seconds']:.1f} s")
    for what, times in sorted(found["errors"].items(), key=lambda item: -item[1])[:5]:
        say(f"  {times} x {what}")
    return result


def summarise(found: Mapping[str, Any], decided: dict[int, float]) -> dict[str, Any]:
    """Returns the figures of a run."""
    waits = [(at - decided[version]) * 1000 for version, at in found["decisions"] if version in decided]
    return {
        "reports_per_second": round(len(found["latencies_ms"]) / found["seconds"], 1),
        "p50_ms": find_percentile(found["latencies_ms"], 50),
        "p99_ms": find_percentile(found["latencies_ms"], 99),
        "decision_to_agent_p99_ms": find_percentile(waits, 99),
        "errors": sum(found["errors"].values()),
    }


def find_percentile(values: Sequence[float], percent: float) -> float | None:
    return round(percentile(values, percent), 3) if values else None
