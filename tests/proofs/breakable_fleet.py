"""A control plane of real processes with two agents, whose places a test breaks for real while requests come.

Two nodes of two simulated GPUs each, HAProxy with its sidecar, a planner, and a Prometheus that scrapes all of it. What
is served is gpuwright-serve under a template of the nodes' own (breakable.py), so that each start can be made to fail.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from sqlalchemy import text

from agents.devices.simulated.remote import Switches, connect
from agents.runtime import Running
from app.store.database.database import Database
from tests.proofs import breakable
from tests.proofs.town import PlannerProcess, agent_words
from tests.support.agents import AgentProcess
from tests.support.gateway_counts import newest_counts
from tests.support.haproxy import Gateway
from tests.support.patience import until
from tests.support.ports import free_port
from tests.support.prometheus import Prometheus
from tests.support.server import RunningServer, running_server
from tests.support.world import manifest, model, profile, service

HOSTS = {"north": "127.0.0.2", "south": "127.0.0.3"}  # of the nodes
GPUS = 2  # of each node
CYCLE_SECONDS = 5
START_SECONDS = 10.0  # the longest start of the template
TENANT, EDGE, TEMPLATE, MODEL, STORE, MODEL_FILE = "shop", "edge", "breakable", "small", "store", "small.json"
LATENCIES = {"1": {"10": 4, "100": 2}, "8": {"10": 16, "100": 6}}
SHIPPED = Path(__file__).parents[2] / "agents" / "templates" / "gpuwright-serve.yaml"
LOOK_SECONDS = 0.1
EVENTS = text(
    "SELECT extract(epoch FROM last_at) AS at, reason, kind, name, message FROM event"
    " WHERE last_at > to_timestamp(:since) ORDER BY last_at"
)
PROMISE: dict[str, Any] = {"slo": {"latencyMs": 200, "percentile": 95}, "ratePerSecond": 20, "minInstances": 1}


@dataclass(frozen=True, slots=True)
class Place:
    """A GPU on which a copy runs."""

    node: str
    gpu: int


@dataclass(frozen=True, slots=True)
class Event:
    """An event of the product, with the time that it carries."""

    at: float
    reason: str
    what: str
    message: str


@dataclass
class BreakableFleet:
    """All of it, running."""

    folder: Path
    server: RunningServer
    gateway: Gateway
    prometheus: Prometheus
    database: Database
    metrics: dict[str, int]  # of the agents: their ports
    agents: dict[str, AgentProcess] = field(default_factory=dict)
    _uuids: dict[Place, str] = field(default_factory=dict)

    # What is declared and told.

    def declare(self, documents: list[dict[str, Any]]) -> None:
        reply = self.server.request("POST", "/api/v1/apply", documents)
        assert reply.status == 200, reply.text

    @contextmanager
    def served(self, name: str, gpu: int = 0) -> Iterator[Place]:
        """A service of one copy on such a GPU, whose rollout is done; afterwards it is gone."""
        for node in HOSTS:
            self._cordon("cordon", node, 1 - gpu)
        self.declare([service(name, TENANT, MODEL, **PROMISE)])
        try:
            self.until(lambda: self.place(name) is not None and self.plan().get("state") == "done", f"{name} is served")
            place = self.place(name)
            assert place and place.gpu == gpu
            for node in HOSTS:
                self._cordon("uncordon", node, 1 - gpu)
            yield place
        finally:
            assert self.server.request("DELETE", f"/api/v1/services/{TENANT}/{name}").status == 200
            self.until(lambda: not any(agent.copies() for agent in self.agents.values()), f"{name} is gone")

    def _cordon(self, verb: str, node: str, gpu: int) -> None:
        reply = self.server.request("POST", f"/api/v1/nodes/{node}/{verb}", {"gpu": gpu})
        assert reply.status == 200, reply.text

    def plan(self) -> Any:
        reply = self.server.request("GET", "/api/v1/plans/current")
        return reply.json if reply.status == 200 else {}

    def place(self, name: str) -> Place | None:
        """Returns where the plan has its copy; None unless gateways are to send requests there."""
        reply = self.server.request("GET", f"/api/v1/endpoints?service={TENANT}/{name}")
        routed = {
            copy["node"] for one in reply.json.get("services", ()) for copy in one.get("copies", ())
            if not copy.get("drained") and copy.get("address")
        }  # fmt: skip
        planned = [one for one in self.plan().get("instances", ()) if one["service"] == f"{TENANT}/{name}"]
        return next((Place(one["node"], one["gpu"]) for one in planned if one["node"] in routed), None)

    def events(self, since: float) -> list[Event]:
        """Returns what happened since, the oldest first."""
        rows = self.database.read(lambda connection: list(connection.execute(EVENTS, {"since": since})))
        return [Event(float(row.at), row.reason, f"{row.kind} {row.name}".strip(), row.message) for row in rows]

    def missed(self, name: str) -> int:
        """Returns how many requests of a service the gateway has counted as failed."""
        counts = [each for gateway in newest_counts(self.database) for each in gateway.counts.services]
        return sum(each.errors for each in counts if each.service == f"{TENANT}/{name}")

    def until(self, holds: Callable[[], object], what: str) -> None:
        """Waits for a state; if it never comes, says what the fleet looks like."""

        def told() -> str:
            logs = [
                (self.folder / "planner.log").read_text()[-1500:],
                self.gateway.log_path.read_text()[-1500:],
                *(each.said_log()[-800:] for each in self.agents.values()),
            ]
            return "\n".join([what, *map(str, self.events(time.time() - 60)[-20:]), *logs])

        def looked() -> object:
            found = holds()
            if not found:  # each look is a request, which the fleet has to answer
                time.sleep(LOOK_SECONDS)
            return found

        until(looked, told)

    # What runs on a node.

    def start_agent(self, node: str) -> None:
        self.agents[node].start(
            "--templates", str(self.folder / f"{node}-templates"), "--models", str(self.folder / STORE),
            "--host", HOSTS[node], "--metrics", f"127.0.0.1:{self.metrics[node]}", *agent_words(self.gateway),
        )  # fmt: skip

    def restart_agent(self, node: str) -> None:
        self.agents[node].end(signal.SIGKILL)
        self.start_agent(node)

    def uuid(self, place: Place) -> str:
        return self._uuids[place]

    def processes(self, place: Place) -> list[Running]:
        """Returns the processes of copies on a GPU."""
        found = []
        for running in self.agents[place.node].runtime.find():
            with suppress(OSError):
                if self.uuid(place) in Path(f"/proc/{running.pid}/environ").read_text():
                    found.append(running)
        return found

    def kill(self, place: Place) -> None:
        for running in self.processes(place):
            with suppress(ProcessLookupError):
                os.kill(running.pid, signal.SIGKILL)

    def switches(self, node: str) -> Switches:
        return Switches(self.agents[node].folder / "simulated")

    def find_gpus(self) -> None:
        """Notes the UUIDs of all GPUs."""
        for node, agent in self.agents.items():
            device, _ = connect(agent.folder / "simulated")
            self._uuids |= {Place(node, index): gpu.uuid for index, gpu in enumerate(device.gpus())}
            device.close()


@contextmanager
def breakable_fleet(url: str, folder: Path, down_seconds: float) -> Iterator[BreakableFleet]:
    """Everything started, and both nodes report."""
    planner_port, metrics = free_port(), {node: free_port() for node in HOSTS}
    settings = {
        "GPUWRIGHT_RATE_BURST": "100000", "GPUWRIGHT_RATE_PER_SECOND": "10000", "GPUWRIGHT_DATABASE_DIRECT": "1",
        "GPUWRIGHT_OPEN_METRICS": "1", "GPUWRIGHT_PLANNER_METRICS_PORT": str(planner_port),
    }  # fmt: skip
    for name in (STORE, "broken", "checkpoints"):
        (folder / name).mkdir()
    (folder / STORE / MODEL_FILE).write_text(json.dumps({"latencyMs": LATENCIES, "memoryGib": {"1": 1.0}}))
    with ExitStack() as stack:
        server = stack.enter_context(running_server(url, **settings))
        (folder / "gateway.token").write_text(server.token("gateway", gateway=EDGE))
        gateway = Gateway(folder / "gateway")
        stack.callback(gateway.close)
        gateway.start_haproxy()
        followed = ["--server", server.url, "--server-token-file", str(folder / "gateway.token"), "--name", EDGE]
        gateway.start_sidecar(*followed, "--loopback")
        gateway.await_sidecar()
        database = Database(url, pool_size=2, direct=True)
        stack.callback(database.close)
        planner = PlannerProcess(url, folder, "planner", settings)
        stack.callback(planner.close)
        ports = (server.port, planner_port, *metrics.values())
        fleet = BreakableFleet(folder, server, gateway, Prometheus(folder, ports), database, metrics)
        for node in HOSTS:
            templates = folder / f"{node}-templates"
            templates.mkdir()
            (templates / f"{TEMPLATE}.yaml").write_text(template(folder / "broken"))
            agent = fleet.agents[node] = AgentProcess(server, folder / node, GPUS, node)
            stack.callback(agent.close)
            fleet.start_agent(node)
        stack.callback(fleet.prometheus.close)
        fleet.prometheus.start()
        fleet.declare(world(down_seconds))
        for node in HOSTS:
            fleet.until(lambda node=node: reports(server, node), f"{node} reports")  # type: ignore[misc]
        fleet.find_gpus()
        yield fleet


def reports(server: RunningServer, node: str) -> bool:
    conditions = server.request("GET", f"/api/v1/nodes/{node}").json.get("status", {}).get("conditions", ())
    return any((found["type"], found["status"]) == ("Reporting", "True") for found in conditions)


def template(broken: Path) -> str:
    """Returns the shipped template of gpuwright-serve, with a script that starts it in between."""
    shipped = yaml.safe_load(SHIPPED.read_text())
    words = shipped["argv"][shipped["argv"].index("agents.programs.serve.main") + 1 :]
    shipped["argv"] = ["{python}", "-I", breakable.__file__, f"{broken}/{{gpu}}", *words]
    shipped["startSeconds"] = START_SECONDS
    written: str = yaml.safe_dump(shipped)
    return written


def world(down_seconds: float) -> list[dict[str, Any]]:
    runtime = {"template": TEMPLATE, "args": {"model": MODEL, "profile": MODEL_FILE}}
    policy = {"mode": "auto", "cycleSeconds": CYCLE_SECONDS, "downSeconds": down_seconds, "lostAfterSeconds": 60}
    figures: dict[str, Any] = {"latencyMs": LATENCIES, "memoryGib": {"1": 1.0, "8": 1.0}, "startSeconds": 2}
    return [
        manifest("Policy", "default", policy),
        model(MODEL, variants=[{"name": "fp16", "accuracy": 0.9, "runtime": runtime}]),
        profile(MODEL, **figures),
    ]
