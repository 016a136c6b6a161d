"""Faults without end in a town whose copies are pods, under requests: after each few all must be as planned again."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from simulation.real.open_loop import percentile
from tests.kubernetes.kubelet.pod_node import budgeted_namespace
from tests.kubernetes.nodes import RunningCluster
from tests.proofs.ledger import Journals
from tests.proofs.pods.agents import PodAgent, make_pod_agents
from tests.proofs.pods.faults import PodFaults
from tests.proofs.pods.judge import PodJudge
from tests.proofs.town import RATE, SERVICE, Town, town
from tests.support.load import Sample, steady_load
from tests.support.patience import until

MOST_AT_ONCE = 8
PAUSE_SECONDS = 0.0, 0.3
SETTLE_SECONDS = 120.0  # a hang guard
ORPHAN_SECONDS = 150.0  # more than agents wait between two looks at what is left over
DEATH_SECONDS = 2.0  # around the end of a copy without a warning, in which its requests may fail


@dataclass
class SiegeSeen:
    """What came of it."""

    struck: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    failed: list[Sample] = field(default_factory=list)
    late: list[Sample] = field(default_factory=list)  # that failed later than a moment after a copy died
    unexplained: list[Sample] = field(default_factory=list)  # that failed though all copies that died were replaced
    broken: list[str] = field(default_factory=list)
    looks: int = 0
    written: int = 0  # writes that a server acknowledged
    lost: list[str] = field(default_factory=list)  # those of them that are not there at the end
    bursts: list[tuple[float, list[str]]] = field(default_factory=list)  # when each few faults began, and which
    recoveries: list[float] = field(default_factory=list)  # seconds from the last fault of a few to the plan

    def list_unexplained(self) -> list[str]:
        """Returns how many requests failed for no known reason in each few faults, and which these were."""
        told = []
        for number, (began, faults) in enumerate(self.bursts):
            ends = self.bursts[number + 1][0] if number + 1 < len(self.bursts) else float("inf")
            own = [sample for sample in self.unexplained if began <= sample.at < ends]
            if own:
                span = f"{own[0].at - began:.1f} to {own[-1].at - began:.1f} s after the first"
                told.append(f"{len(own)} failed, {span} of {faults}: {Counter(sample.status for sample in own)}")
        return told

    def __str__(self) -> str:
        spread = ", ".join(f"p{percent} {percentile(self.recoveries, percent):.1f}" for percent in (50, 90, 99, 100))
        kinds = ", ".join(f"{count} {kind}" for kind, count in self.struck.most_common())
        return (
            f"{self.struck.total()} faults ({kinds}); {self.requests} requests, {len(self.failed)} failed, "
            f"{len(self.late)} of them not right after a copy died, {len(self.unexplained)} though all was as planned "
            f"since; broken in {self.looks} looks: {len(self.broken)}; "
            f"{self.written} acknowledged writes, {len(self.lost)} lost; "
            f"seconds until all is as planned ({len(self.recoveries)}): {spread}"
        )


@contextmanager
def pod_town(cluster: RunningCluster, url: str, folder: Path, agents: int) -> Iterator[Town]:
    settings = {"GPUWRIGHT_DATABASE_DIRECT": "1"}
    with (
        budgeted_namespace(cluster) as namespace,
        town(url, url, folder, agents, settings, make_agent=make_pod_agents(cluster, namespace)) as made,
    ):
        yield made


def pods_of(made: Town) -> list[PodAgent]:
    return [agent for agent in made.agents if isinstance(agent, PodAgent)]


def besiege(
    made: Town, faults: int, seed: int, journals: Journals, say: Callable[[str], object] = lambda _: None
) -> SiegeSeen:
    """Strikes so many times; `say` hears how far it is."""
    rng, seen = random.Random(seed), SiegeSeen()
    striking, judge = PodFaults(made, rng), PodJudge(made, pods_of(made))
    acknowledged: set[str] = set()
    settled: list[float] = []  # time.monotonic() when all was as planned again
    path = f"/shop/{SERVICE}/v1/models/stub:infer"
    with steady_load(made.gateway.port, path, rate_per_second=RATE / 2, method="POST", body="{}") as load:
        settle(judge, "at first")
        judge.start()
        try:
            while striking.struck.total() < faults:
                last: list[str] = []
                seen.bursts.append((time.monotonic(), last))
                for _ in range(rng.randint(1, MOST_AT_ONCE)):
                    journals.read()
                    last.append(striking.strike())
                    acknowledged |= write_tenant(made, f"guest-{striking.struck.total()}")
                    time.sleep(rng.uniform(*PAUSE_SECONDS))
                striking.mend()
                began = time.monotonic()
                settle(judge, f"after {last}")
                settled.append(time.monotonic())
                seen.recoveries.append(settled[-1] - began)
                took, broken = seen.recoveries[-1], len(judge.broken)
                say(f"{striking.struck.total()} faults; back after {took:.1f} s; broken so far: {broken}; {last}")
        finally:
            judge.stop()
        load.await_answers(10)
        outcome = load.stop()
    journals.read()
    seen.struck, seen.broken, seen.looks = striking.struck, judge.broken, judge.looks
    seen.written, seen.lost = len(acknowledged), sorted(acknowledged - read_tenants(made))
    seen.requests, seen.failed = len(outcome.samples), list(outcome.failed)
    seen.late = [sample for sample in seen.failed if not _is_right_after_a_death(sample, striking.deaths)]
    deaths = striking.deaths
    seen.unexplained = [sample for sample in seen.late if not _is_before_all_is_replaced(sample, deaths, settled)]
    return seen


def write_tenant(made: Town, name: str) -> set[str]:
    """Asks one server after the other for a new tenant, until one has said that it is there."""
    asked = {"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": {}}
    for server in made.servers:
        with suppress(OSError):
            if server.request("POST", "/api/v1/apply", [asked]).status == 200:
                return {name}
    return set()


def read_tenants(made: Town) -> set[str]:
    return {row.name for row in made.rows("SELECT name FROM object WHERE kind = 'Tenant'")}


def settle(judge: PodJudge, when: str) -> None:
    """Waits until all is as planned, and as judged by those who do not know what the agents think."""
    found: list[str] = []

    def is_as_planned() -> bool:
        found[:] = judge.find_left_over() if judge.made.served() else ["the plan is not done"]
        time.sleep(0.1)
        return not found

    until(is_as_planned, lambda: f"{when}: {found}", SETTLE_SECONDS)


def end_all(made: Town) -> list[str]:
    """Withdraws the service; returns what is left of its copies then."""
    judge = PodJudge(made, pods_of(made))
    assert made.servers[0].request("DELETE", f"/api/v1/services/shop/{SERVICE}").status < 300
    left: list[str] = []

    def is_empty() -> bool:
        left[:] = judge.find_orphans()
        return not left

    with suppress(AssertionError):
        until(is_empty, "nothing is left", ORPHAN_SECONDS)
    return left


def _is_right_after_a_death(sample: Sample, deaths: list[float]) -> bool:
    return any(sample.at - DEATH_SECONDS <= death <= _end(sample) for death in deaths)


def _is_before_all_is_replaced(sample: Sample, deaths: list[float], settled: list[float]) -> bool:
    """Returns whether a copy had died since all was last as planned."""
    last = max((moment for moment in settled if moment <= sample.at), default=0.0)
    return any(last <= death <= _end(sample) for death in deaths)


def _end(sample: Sample) -> float:
    return sample.at + sample.latency_ms / 1000
