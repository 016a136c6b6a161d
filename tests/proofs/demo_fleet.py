"""The testbed's fleet, whole: six nodes with 12 simulated GPUs, real copies, its load; what it served and what it cost.

The same by processes and by any other runtime, which `make_agent` chooses.

    python -m tests.proofs.demo_fleet --seconds 600
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from simulation.testbed.node import stub_profiles
from tests.app.ledger.judge import Held, judged
from tests.proofs.ledger import Journals, Verdict, declared, judged_by_journals
from tests.proofs.town import Town, town
from tests.support.agents import AgentProcess
from tests.support.forked import ROOT
from tests.support.patience import patience, until
from tests.support.postgres import postgres_of_the_wheel
from tests.support.server import RunningServer
from tests.support.soak import scaled

WORLD = ROOT / "examples" / "testbed.yaml"
KINDS = {"v100": ("v100-32gb", "v100-sxm2-32gb"), "l4": ("l4", "l4-24gb"), "t4": ("t4", "t4-16gb")}
NODES = tuple(f"{name}-{number}" for name in KINDS for number in (1, 2))
GPUS = 2
PRICING = "share"  # of the world's policy
CALM_SECONDS = scaled(30, 16)  # without a new plan: more than a cycle
SETTINGS = {"GPUWRIGHT_DATABASE_DIRECT": "1", "GPUWRIGHT_SOLVE_SECONDS": f"{scaled(30, 5)}"}

NodeMaker = Callable[[RunningServer, Path, str, dict[str, str]], AgentProcess]


@dataclass(frozen=True)
class Served:
    """What one service answered."""

    requests: int
    failed: int
    late: int
    percentile: float  # that was promised

    @property
    def attained(self) -> float:
        return 100 * (1 - (self.failed + self.late) / self.requests)


@dataclass(frozen=True)
class DemoSeen:
    """What a fleet did in its seconds of load."""

    services: Mapping[str, Served]
    plan: Mapping[str, Sequence[str]]  # by service: GPU type and share of each instance, at the end
    plans: int  # that were made under the load
    nano: Mapping[str, int]  # what it cost meanwhile, by service, with `__idle__` and `__unallocated__`
    ledger: Verdict  # of all its life, by the journals of its agents

    @property
    def is_kept(self) -> bool:
        """Says whether every promise was kept, and every cent was booked as the nodes had it."""
        kept = all(seen.failed == 0 and seen.attained >= seen.percentile for seen in self.services.values())
        return kept and not self.ledger.wrong and not self.ledger.unmarked

    def __str__(self) -> str:
        lines = [
            f"{name}: {seen.requests} requests, {seen.failed} failed, {seen.late} late, {seen.attained:.2f} % of "
            f"{seen.percentile:g} %; {self.nano.get(name, 0) / 1e9:.4f}; {', '.join(self.plan[name])}"
            for name, seen in sorted(self.services.items())
        ]
        rest = [f"{name} {nano / 1e9:.4f}" for name, nano in sorted(self.nano.items()) if name not in self.services]
        lines.append(f"{', '.join(rest)}; in all {sum(self.nano.values()) / 1e9:.6f}; {self.plans} plans under load")
        lines.append(
            f"ledger: {self.ledger.copies} copies, {self.ledger.slices} parts, {len(self.ledger.wrong)} not as the "
            f"journals have them, {self.ledger.unmarked} us unmarked"
        )
        return "\n".join([*lines, *self.ledger.wrong[:10]])


def run_demo(url: str, folder: Path, seconds: float, make_node: NodeMaker) -> DemoSeen:
    """Runs the fleet under its load for so long, and ends it."""
    with _demo_town(url, folder, make_node) as made:
        until(lambda: _is_as_planned(made), "the plan runs", 2 * patience())
        _await_calm(made)
        plans, start = _count_plans(made), datetime.now(UTC)
        answers = _send_load(made, seconds)
        journals = Journals(made)
        journals.read()
        until(lambda: _is_as_planned(made), "the plan runs")
        plan, plans = _read_plan(made), _count_plans(made) - plans
        nano = _price(made, start, start + timedelta(seconds=seconds))
        ledger = judged_by_journals(made, journals, url, PRICING)
    return DemoSeen(_judge_answers(answers), plan, plans, nano, ledger)


@contextmanager
def _demo_town(url: str, folder: Path, make_node: NodeMaker) -> Iterator[Town]:
    text = WORLD.read_text()
    documents = [each for each in yaml.safe_load_all(text) if each["kind"] != "Node"]  # they join by themselves

    def make_agent(server: RunningServer, place: Path, node: str) -> AgentProcess:
        assert server.request("POST", "/api/v1/apply", documents).status == 200
        kind, gpu_type = KINDS[node.partition("-")[0]]
        models = folder / f"data-{node}" / "models"
        models.mkdir(parents=True)
        for model, profile in stub_profiles(text, gpu_type).items():
            (models / f"{model}.json").write_text(json.dumps(profile))
        agent = make_node(server, place, node, {"kind": kind, "gpu_type_name": gpu_type})
        agent.more = ("--models", str(models))
        return agent

    with town(url, url, folder, len(NODES), SETTINGS, None, make_agent, documents, NODES) as made:
        yield made


def make_process_node(server: RunningServer, folder: Path, node: str, kinds: dict[str, str]) -> AgentProcess:
    return AgentProcess(server, folder, GPUS, node, **kinds)


def _is_as_planned(made: Town) -> bool:
    if not made.served():  # asked often, and it reads no process of the machine while the plan is not done
        return False
    planned = sorted(row.instance for row in made.rows("SELECT instance FROM assigned WHERE withdrawn_at IS NULL"))
    running = sorted(copy.rsplit(".", 2)[0] for copy in made.running())
    return bool(planned) and planned == running


def _await_calm(made: Town) -> None:
    """Waits until no plan was made for a while: by then the fleet has settled."""
    count, since = _count_plans(made), time.monotonic()
    while time.monotonic() - since < CALM_SECONDS:
        time.sleep(1.0)
        if (now := _count_plans(made)) != count:
            count, since = now, time.monotonic()


def _count_plans(made: Town) -> int:
    return int(made.rows("SELECT count(*) FROM plan WHERE state = 'done'")[0][0])


def _send_load(made: Town, seconds: float) -> dict[str, list[tuple[float, float, int]]]:
    address = f"127.0.0.1:{made.gateway.port}"
    words = [sys.executable, "-m", "tests.proofs.demo_load", address, str(WORLD), str(seconds)]
    done = subprocess.run(words, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=seconds + patience())
    found: dict[str, list[tuple[float, float, int]]] = json.loads(done.stdout)
    return found


def _judge_answers(answers: Mapping[str, Sequence[tuple[float, float, int]]]) -> dict[str, Served]:
    services = [each for each in yaml.safe_load_all(WORLD.read_text()) if each["kind"] == "Service"]
    found = {}
    for service in services:
        name, slo = f"{service['metadata']['tenant']}/{service['metadata']['name']}", service["spec"]["slo"]
        good = [latency for _, latency, status in answers[name] if status == 200]
        late = sum(latency > slo["latencyMs"] for latency in good)
        count = len(answers[name])
        found[name] = Served(count, count - len(good), late, slo["percentile"])
    return found


def _read_plan(made: Town) -> dict[str, list[str]]:
    sql = """
        SELECT tenant, service, node, sm_percent FROM assigned WHERE withdrawn_at IS NULL ORDER BY 1, 2, 3, 4
    """
    found: dict[str, list[str]] = defaultdict(list)
    for row in made.rows(sql):
        found[f"{row.tenant}/{row.service}"].append(f"{row.node.partition('-')[0]} {row.sm_percent:g} %")
    return found


def _price(made: Town, start: datetime, stop: datetime) -> dict[str, int]:
    """Returns what the judge of money makes of the usage between two moments."""
    rows: Sequence[Any] = made.rows("SELECT * FROM usage_interval")
    held = [
        Held(row.id, row.node, row.gpu, row.tenant, row.service, row.sm_percent, row.memory_gib, row.dedicated,
             row.started_at, row.ended_at or stop)
        for row in rows
    ]  # fmt: skip
    paid, prices = declared(made)
    found: dict[str, int] = defaultdict(int)
    for (_, _, _, tenant, service), nano in judged(paid, prices, held, start, stop, PRICING).parts.items():
        found[f"{tenant}/{service}" if service else tenant] += nano
    return found


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    args = parser.parse_args()
    with TemporaryDirectory() as name, postgres_of_the_wheel(Path(name) / "postgres") as server:
        folder = Path(name) / "town"
        folder.mkdir()
        print(run_demo(server.create(), folder, args.seconds, make_process_node))
    return 0


if __name__ == "__main__":
    sys.exit(main())
