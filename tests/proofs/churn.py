"""Instance changes without end on one node: `python -m tests.proofs.churn --changes 1000`, or with `--virtual`.

Instances are started, resized, stopped and killed. The agent's side, a keeper and a watch over a simulated driver, is
a process of its own, and the copies are real. Its memory, files and threads are taken whenever the node has come to
rest, and must stay what they are. With `--virtual` the copies are simulated and time is virtual.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agents.contract.assignments import AssignedInstance, Assignment
from agents.node.node import LocalNode
from tests.support.nodes import Machine, assigned, machine, ready, served
from tests.support.patience import patience
from tests.support.virtual import VirtualNode

ROOT = Path(__file__).parents[2]
SHARES = (8.0, 10.0, 12.0, 14.0)
ANSWER_SECONDS = 120.0  # a hang guard
REPORT_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Sample:
    """What the agent's process held when so many changes had been made and nothing was under way."""

    changes: int
    resident_mib: float
    files: int
    threads: int
    journal_kib: float


@dataclass(slots=True)
class Figures:
    """As sampled."""

    samples: list[Sample] = field(default_factory=list)
    kinds: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def settled(self) -> list[Sample]:
        """Without the first tenth: an agent loads what it uses when it uses it first."""
        return self.samples[len(self.samples) // 10 :]

    @property
    def mib_per_1000(self) -> float:
        """The slope of resident memory, by least squares."""
        points = [(sample.changes / 1000, sample.resident_mib) for sample in self.settled]
        mean_x = sum(x for x, _ in points) / len(points)
        mean_y = sum(y for _, y in points) / len(points)
        square = sum((x - mean_x) ** 2 for x, _ in points)
        return sum((x - mean_x) * (y - mean_y) for x, y in points) / square if square else 0.0

    def __str__(self) -> str:
        first, last = self.settled[0], self.samples[-1]
        most = max(sample.journal_kib for sample in self.samples)
        made = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return "\n".join(
            [
                f"{last.changes} changes in {self.seconds:.0f} s: {made}",
                f"resident MiB: {first.resident_mib:.1f} after {first.changes} changes, {last.resident_mib:.1f} at the "
                f"end, {self.mib_per_1000:+.3f} per 1,000 changes",
                f"files: {first.files} and {last.files}; threads: {first.threads} and {last.threads}; "
                f"journal: {most:.0f} KiB at most",
            ]
        )


class Plan:
    """What is wanted, changed at random so that there is always room for it."""

    def __init__(self, seed: int, gpus: int, per_gpu: int) -> None:
        self._random = random.Random(seed)
        self._gpu = {f"s{number}-{gpu}": gpu for gpu in range(gpus) for number in range(per_gpu)}
        self._share: dict[str, float] = {}
        self._died: set[str] = set()  # it rests for longer when it dies again in the same shape
        self.kinds: dict[str, int] = {}

    @property
    def instances(self) -> list[AssignedInstance]:
        return [served(name, self._gpu[name], share, 0.75) for name, share in sorted(self._share.items())]

    def change(self, count: int) -> list[str]:
        """Change so many instances; those that are to be killed."""
        killed = []
        for name in self._random.sample(sorted(self._gpu), count):
            share = self._share.get(name)
            lot = self._random.random()
            if share is None:
                self._share[name] = self._random.choice(SHARES)
                self._count("starts")
            elif lot < 0.2:
                del self._share[name]
                self._count("stops")
            elif lot < 0.4 and name not in self._died:
                killed.append(name)
                self._died.add(name)
                self._count("deaths")
                continue
            else:
                self._share[name] = self._random.choice([other for other in SHARES if other != share])
                self._count("resizes")
            self._died.discard(name)
        return killed

    def _count(self, kind: str) -> None:
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


def sampled(pid: int, changes: int, journal: Path) -> Sample:
    folder = Path(f"/proc/{pid}")
    (resident,) = [line for line in (folder / "status").read_text().splitlines() if line.startswith("VmRSS:")]
    return Sample(
        changes,
        int(resident.split()[1]) / 1024,
        len(list((folder / "fd").iterdir())),
        len(list((folder / "task").iterdir())),
        journal.stat().st_size / 1024,
    )


# With real processes.


class Told(msgspec.Struct):
    """One line to the agent's process."""

    assignment: Assignment
    killed: dict[str, int]  # PIDs of instances that must run as others


def real(folder: Path, changes: int, gpus: int = 2, per_gpu: int = 6, at_once: int = 10, seed: int = 1) -> Figures:
    """A node in a process of its own, with real copies."""
    with machine(folder, ["v100-16gb"] * gpus) as made:
        command = [sys.executable, "-m", "tests.proofs.churn", "--agent", str(made.folder), "--gpus", str(gpus)]
        with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as agent:
            try:
                return _churn(agent, folder / "state" / "journal.jsonl", changes, Plan(seed, gpus, per_gpu), at_once)
            finally:
                assert agent.stdin is not None
                agent.stdin.close()
                agent.wait(timeout=patience())


def _churn(agent: subprocess.Popen[bytes], journal: Path, changes: int, plan: Plan, at_once: int) -> Figures:
    figures, made, generation = Figures(kinds=plan.kinds), 0, 0
    pids: dict[str, int] = {}
    assert agent.stdin is not None
    assert agent.stdout is not None
    begun = time.monotonic()
    while made < changes:
        count = min(at_once, changes - made)
        killed = {name: pids[name] for name in plan.change(count)}
        for pid in killed.values():
            os.kill(pid, signal.SIGKILL)
        made, generation = made + count, generation + 1
        told = Told(assigned(generation, *plan.instances), killed)
        agent.stdin.write(msgspec.json.encode(told) + b"\n")
        agent.stdin.flush()
        line = agent.stdout.readline()
        assert line, "the agent's process has ended"
        pids = msgspec.json.decode(line, type=dict[str, int])
        figures.samples.append(sampled(agent.pid, made, journal))
    figures.seconds = time.monotonic() - begun
    return figures


def agent(folder: Path, gpus: int) -> None:
    """The agent's process: takes assignments line by line, and answers each when the node has come to rest."""
    made = Machine(folder, ["v100-16gb"] * gpus)
    node = made.node()
    node.start()
    reported_at = 0.0
    try:
        for line in sys.stdin.buffer:
            told = msgspec.json.decode(line, type=Told)
            node.offer(told.assignment)
            since = time.monotonic()
            while not at_rest(node, told):
                assert time.monotonic() - since < ANSWER_SECONDS, said(node)
                time.sleep(0.02)
                if time.monotonic() - reported_at > REPORT_SECONDS:
                    reported_at = time.monotonic()
                    node.acknowledge(node.report_body(*node.current_minute()).usage, ())
            pids = {copy.instance: copy.running.pid for copy in node.keeper.copies() if copy.running}
            sys.stdout.buffer.write(msgspec.json.encode(pids) + b"\n")
            sys.stdout.buffer.flush()
    finally:
        node.stop()


def at_rest(node: LocalNode, told: Told) -> bool:
    copies = {copy.instance: copy for copy in node.keeper.copies()}
    wanted = told.assignment.instances
    if not ready(node, *(one.id for one in wanted)):
        return False
    return all(copies[one.id].wanted.sm_percent == one.sm_percent for one in wanted) and all(
        running.pid != told.killed.get(name) for name, copy in copies.items() if (running := copy.running)
    )


def said(node: LocalNode) -> str:
    copies = [(copy.id, str(copy.stage), copy.reason) for copy in node.keeper.copies()]
    return f"the node does not come to rest: {copies}, held back: {node.keeper.held}"


# In virtual time.


def simulated(
    folder: Path,
    changes: int,
    gpus: int = 4,
    per_gpu: int = 6,
    at_once: int = 12,
    seed: int = 1,
    look: Callable[[VirtualNode], None] = lambda node: None,
) -> Figures:
    """A node within this process, whose copies are records in a model."""
    virtual = VirtualNode(folder, ["v100-16gb"] * gpus)
    plan, figures, made, reported_at = Plan(seed, gpus, per_gpu), Figures(), 0, 0.0
    figures.kinds = plan.kinds
    begun = time.monotonic()
    while made < changes:
        count = min(at_once, changes - made)
        killed = {}
        for name in plan.change(count):
            process = virtual.process(name)
            process.exit_by(virtual.now)
            killed[name] = process.pid
        made += count
        virtual.offer(*plan.instances)
        told = Told(assigned(virtual.generation, *plan.instances), killed)
        for now in virtual.passes(ANSWER_SECONDS, 0.5):
            look(virtual)
            if now - reported_at >= 10:
                reported_at = now
                virtual.node.acknowledge(virtual.node.report_body(*virtual.node.current_minute()).usage, ())
            if at_rest(virtual.node, told):
                break
        else:
            raise AssertionError(said(virtual.node))
        figures.samples.append(sampled(os.getpid(), made, folder / "journal.jsonl"))
    figures.seconds = time.monotonic() - begun
    virtual.node.stop()
    return figures


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--changes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--agent", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gpus", type=int, default=2)
    asked = parser.parse_args(arguments)
    if asked.agent:
        agent(asked.agent, asked.gpus)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        run = simulated if asked.virtual else real
        print(run(Path(folder), asked.changes, gpus=asked.gpus, seed=asked.seed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
