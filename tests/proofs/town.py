"""A whole control plane of real processes: planners, APIs, agents, HAProxy with its sidecar. Any may be killed.

python -m tests.proofs.town --agents 20 --blows 50
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import text

from app.store.database.database import Database
from tests.support.agents import AgentProcess
from tests.support.forked import ROOT, find_python
from tests.support.haproxy import Gateway, running_gateway
from tests.support.load import Outcome, steady_load
from tests.support.patience import until
from tests.support.postgres import postgres_of_the_wheel
from tests.support.server import RunningServer

LEASE_SECONDS = 3.0
RATE = 40.0
SERVICE = "search"
STUB = {"1": {"10": 12.0, "40": 5.0, "100": 4.0}, "8": {"10": 40.0, "40": 16.0, "100": 12.0}}
MakeAgent = Callable[[RunningServer, Path, str], AgentProcess]
LATENCY = ";".join(f"{batch}:" + ",".join(f"{sm}={ms:g}" for sm, ms in curve.items()) for batch, curve in STUB.items())


def world() -> list[dict[str, Any]]:
    """One model that the shipped server's stub obeys, and a service of it; nodes join by themselves."""
    v1 = "gpuwright/v1"
    runtime = {"template": "gpuwright-serve", "args": {"model": "stub", "latency": LATENCY}}
    variants = [{"name": "fp16", "accuracy": 0.7, "paramsM": 5, "runtime": runtime}]
    profile = {
        "model": "stub", "variant": "fp16", "gpuType": "v100-16gb", "latencyMs": STUB,
        "memoryGib": {"1": 1.0, "8": 1.5}, "startSeconds": 5,
    }  # fmt: skip
    slo = {"latencyMs": 400, "percentile": 95}
    rhythm = {"mode": "auto", "cycleSeconds": 5}
    return [
        {"apiVersion": v1, "kind": "Policy", "metadata": {"name": "default"}, "spec": rhythm},
        {"apiVersion": v1, "kind": "Model", "metadata": {"name": "stub"}, "spec": {"variants": variants}},
        {"apiVersion": v1, "kind": "Profile", "metadata": {"name": "stub-v100"}, "spec": profile},
        {
            "apiVersion": v1, "kind": "Service", "metadata": {"name": SERVICE, "tenant": "shop"},
            "spec": {"model": "stub", "slo": slo, "ratePerSecond": RATE, "minInstances": 2},
        },
    ]  # fmt: skip


class PlannerProcess:
    """`gpuwright planner`, which may be killed and started again."""

    def __init__(self, url: str, folder: Path, name: str, environment: dict[str, str], code: Path = ROOT) -> None:
        self.log_path = folder / f"{name}.log"
        self._environment = (
            os.environ
            | {
                "DATABASE_URL": url,
                "GPUWRIGHT_LEASE_SECONDS": str(LEASE_SECONDS),
                "GPUWRIGHT_SOLVE_SECONDS": "1",
            }
            | environment
        )
        self._code = code
        self.process: subprocess.Popen[bytes]
        self.start()

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [find_python(self._code), "-m", "cli.main", "planner"],
                cwd=self._code, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


@dataclass
class Town:
    """All of it, running."""

    database: Database
    servers: list[RunningServer]
    planners: list[PlannerProcess]
    agents: list[AgentProcess]
    gateway: Gateway
    blows: list[str] = field(default_factory=list)

    def rows(self, sql: str) -> Sequence[Any]:
        return self.database.read(lambda c: list(c.execute(text(sql))))

    def strike(self, rng: random.Random) -> str:
        """End or pause one process, and let it come back."""
        kind = rng.choice(["planner", "planner", "api", "agent", "agent", "sidecar"])
        how = rng.choice(["kill", "stop"])
        if kind == "planner":
            planner = rng.choice(self.planners)
            name = f"planner {self.planners.index(planner)}"
            if how == "kill":
                planner.close()
                planner.start()
            else:
                _paused(planner.process.pid, rng.uniform(LEASE_SECONDS, 3 * LEASE_SECONDS))
        elif kind == "api":
            server = rng.choice(self.servers)
            name = f"api {self.servers.index(server)}"
            if how == "kill":
                server.kill()
                server.restart()
            else:
                _paused(server.process.pid, rng.uniform(1, 6))
        elif kind == "agent":
            agent = rng.choice(self.agents)
            name = f"agent {agent.node}"
            assert agent.process
            if how == "kill":
                agent.end(signal.SIGKILL)
                agent.start(*agent_words(self.gateway))
            else:
                _paused(agent.process.pid, rng.uniform(1, 10))
        else:
            name = "sidecar"
            if how == "kill":
                self.gateway.kill_sidecar()
                self.gateway.start_sidecar()
                self.gateway.await_sidecar()
            else:
                assert self.gateway.sidecar
                _paused(self.gateway.sidecar.pid, rng.uniform(1, 4))
        self.blows.append(f"{how} {name}")
        return self.blows[-1]

    def served(self) -> bool:
        """Whether the plan is rolled out and its copies run, each once."""
        plan = self.rows("SELECT state FROM plan ORDER BY generation DESC LIMIT 1")
        return bool(plan) and plan[0][0] == "done" and len(self.running()) >= 2

    def running(self) -> list[str]:
        """Copies that run anywhere."""
        return [copy for agent in self.agents for copy in agent.copies()]

    def twice(self) -> list[str]:
        """Instances that run more than once, or on more than one node."""
        instances = [copy.rsplit(".", 2)[0] for copy in self.running()]
        return sorted({one for one in instances if instances.count(one) > 1})

    def out_of_order(self) -> list[Any]:
        """Plans whose epoch is below that of one before them."""
        rows = self.rows("SELECT generation, epoch, max(epoch) OVER (ORDER BY generation) AS highest FROM plan")
        return [row for row in rows if row.epoch < row.highest]


def make_process_agent(server: RunningServer, folder: Path, node: str) -> AgentProcess:
    """Returns an agent of one GPU whose copies are processes of this machine."""
    return AgentProcess(server, folder, 1, node)


def agent_words(gateway: Gateway) -> list[str]:
    return ["--gateway", f"unix:{gateway.listen}"]


@contextmanager
def town(
    url: str,
    direct_url: str,
    folder: Path,
    agents: int,
    environment: dict[str, str] | None = None,
    codes: Mapping[str, Path] | None = None,
    make_agent: MakeAgent | None = None,
    documents: Sequence[dict[str, Any]] = (),
    names: Sequence[str] = (),
) -> Iterator[Town]:
    """Everything started, and the service served. `codes` names parts of another version; of agents, the first is."""
    make_agent = make_agent or make_process_agent
    of_part = dict.fromkeys(("server", "planner", "agent"), ROOT) | dict(codes or {})
    settings = {"GPUWRIGHT_RATE_BURST": "100000", "GPUWRIGHT_RATE_PER_SECOND": "10000"} | (environment or {})
    with ExitStack() as stack:
        gateway = stack.enter_context(running_gateway(folder / "gateway"))
        servers = []
        for number in range(2):
            place = folder / f"api-{number}"
            place.mkdir()
            servers.append(RunningServer(url, place, settings))
            stack.callback(servers[-1].kill)
            if of_part["server"] != ROOT:
                servers[-1].code = of_part["server"]
                servers[-1].restart()
        fleet = []
        for number, name in enumerate(names or [f"node-{number}" for number in range(agents)]):
            fleet.append(make_agent(servers[number % 2], folder / name, name))
            stack.callback(fleet[-1].close)
            if not number:
                fleet[0].code = of_part["agent"]
            fleet[-1].start(*agent_words(gateway))
        reply = servers[0].request("POST", "/api/v1/apply", [*documents] or world())
        assert reply.status == 200, reply.text
        planners = []
        for number in range(2):
            planners.append(PlannerProcess(url, folder, f"planner-{number}", settings, of_part["planner"]))
            stack.callback(planners[-1].close)
        database = Database(direct_url, pool_size=2, direct=True)
        stack.callback(database.close)
        made = Town(database, servers, planners, fleet, gateway)
        until(made.served, f"the service is not served, see {folder}")
        yield made


def siege(made: Town, blows: int, seed: int) -> Outcome:
    """So many blows under requests, and then until all is as it was; what became of the requests."""
    rng = random.Random(seed)
    with steady_load(
        made.gateway.port, f"/shop/{SERVICE}/v1/models/stub:infer", rate_per_second=RATE / 2, method="POST", body="{}"
    ) as load:
        time.sleep(2)
        for _ in range(blows):
            made.strike(rng)
            time.sleep(rng.uniform(0.2, 2.0))
        until(made.served, f"not served again after {made.blows}")
        time.sleep(2)
        return load.stop()


def _paused(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--agents", type=int, default=20)
    parser.add_argument("--blows", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        url = server.create()
        folder = Path(name) / "town"
        folder.mkdir()
        with town(url, url, folder, args.agents, {"GPUWRIGHT_DATABASE_DIRECT": "1"}) as made:
            outcome = siege(made, args.blows, args.seed)
            failed = len(outcome.failed)
            epochs = made.rows("SELECT max(epoch) FROM lease")[0][0]
            print(
                f"{len(made.blows)} blows, {args.agents} agents: {len(outcome.samples)} requests, {failed} failed; "
                f"{epochs} epochs, {len(made.out_of_order())} plans out of order, started twice: {made.twice()}"
            )
            for sample in outcome.failed[:10]:
                print(f"  {sample}")
            return int(bool(failed or made.twice() or made.out_of_order()))


if __name__ == "__main__":
    sys.exit(main())
