"""Decisions recorded in a changing small world are made again by a process that gets little of the machine.

Recorded by the solver's process, some cut short by their seconds, some by the fast lane; replayed by another program at
nice 19 beside a busy loop. By itself: `python -m tests.proofs.replays --cycles 1000`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from app.control.answer.replay import Record, read_record, replay, write_record
from app.control.decide.decide import draft_changes, split_by_mode
from app.control.decide.deciding import Asking, CycleBudget, decide, pose_moment
from app.control.domain.decision import Decision, SolveOutcome
from app.control.domain.events import Reason
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, NodeStatus, Snapshot
from app.control.fast import CapacityNeed, StepTrigger
from app.control.fast.base import step_base
from app.control.fast.drafting import draft_step, note_calls
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from app.control.solve.recorded import RecordingSolver
from app.control.solve.solver import Solver
from app.control.solve.versions import versions
from solvers.compiled import read_all
from tests.app.control.as_manifests import manifests
from tests.solvers.planning.random_problems import NOON, random_problem

CYCLES_A_WORLD = 8
SECONDS = 60.0  # a guard
READY, START = "ready\n", "start\n"  # what the program that replays says, and what it then waits for
MODES = ("auto", "auto", "approve")


@dataclass(slots=True)
class Seen:
    """What came of it."""

    kinds: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)
    bytes_a_record: float = 0.0

    def __str__(self) -> str:
        of = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items()))
        return (
            f"{self.kinds.total()} decisions replayed ({of}), {len(self.differences)} differ; "
            f"{self.bytes_a_record / 1e3:.1f} kB a record"
        )


def first(seed: int) -> Snapshot:
    """A world in which nothing runs yet."""
    problem = random_problem(seed)
    # Each in a region of its own, since each has its own price.
    nodes = {name: replace(node, region=name) for name, node in problem.nodes.items()}
    problem = replace(problem, nodes=nodes, state=None)
    mode = {"Policy": {"mode": MODES[seed % len(MODES)]}}
    declared = tuple(
        DeclaredObject(
            one["kind"], one["metadata"].get("tenant", ""), one["metadata"]["name"],
            one["spec"] | mode.get(one["kind"], {}),
        )
        for one in manifests(problem)
    )  # fmt: skip
    missing = {
        name: tuple(index for index in range(node.gpus[-1]) if not node.has_gpu(index)) for name, node in nodes.items()
    }
    facts = {name: NodeStatus(name, "reporting", cordoned_gpus=gpus) for name, gpus in missing.items()}
    return Snapshot(NOON, 1, declared, facts)


def changed(snapshot: Snapshot, r: Random) -> Snapshot:
    """The same a while later: loads have moved, now and then a GPU fails or returns."""
    rates = {
        f"{one.tenant}/{one.name}": float(str(one.spec["ratePerSecond"]))
        for one in snapshot.declared
        if one.kind == "Service"
    }
    expected = {name: ExpectedLoad(rate * r.uniform(0.5, 1.6)) for name, rate in rates.items()}
    nodes = {
        name: replace(facts, failed_gpus=(0,) if r.random() < 0.1 else ()) for name, facts in snapshot.nodes.items()
    }
    return replace(snapshot, at=snapshot.at + timedelta(seconds=30), expected=expected, nodes=nodes)


def begun(seed: int) -> Snapshot:
    """A world in which the first plan runs."""
    snapshot = first(seed)
    question = formulate(snapshot)
    decision = draft_changes(snapshot, question, Inline().solve(question.problem, seconds=SECONDS, work=2))
    return replace(snapshot, in_force=dict(decision.desired), target=1)


def decisions(cycles: int, solver: Solver) -> Iterator[Record]:
    """So many, each from what the one before it left standing."""
    r, made, seed = Random(0), 0, 0
    while made < cycles:
        snapshot = first(seed)
        for number in range(CYCLES_A_WORLD):
            snapshot = changed(snapshot, r)
            found = _quick(snapshot, r, solver) if number % 4 == 3 else _full(snapshot, r, solver)
            if found is None:
                continue
            snapshot, decision = found
            record = _recorded(snapshot, decision, made + 1)
            yield record
            made += 1
            snapshot = replace(snapshot, in_force=dict(decision.desired), target=record.generation, calls={})
            if made == cycles:
                return
        seed += 1


def _full(snapshot: Snapshot, r: Random, solver: Solver) -> tuple[Snapshot, Decision] | None:
    budget = CycleBudget(SECONDS, r.randint(1, 5), r.randrange(9))
    if r.random() < 0.3:  # whatever is found by then
        budget = CycleBudget(r.choice([0.0, 0.02, 0.1]), 100_000, budget.seed)
    recording = RecordingSolver(solver)
    decision = decide(pose_moment(snapshot), Asking(recording, budget, Reason.CYCLE)).decision
    assert all(draft.outcome is not SolveOutcome.CRASHED for draft in recording.drafts)
    if decision is None:
        return None
    decision = next(iter(split_by_mode(snapshot, decision)), decision)
    return snapshot, replace(decision, drafts=tuple(recording.drafts))


def _quick(snapshot: Snapshot, r: Random, solver: Solver) -> tuple[Snapshot, Decision] | None:
    base = step_base(snapshot, formulate(snapshot))
    names = sorted(base.question.problem.services)
    if not names:
        return None
    name = r.choice(names)
    rate = base.question.problem.services[name].rate_per_second * r.uniform(1.1, 3.0)
    call = CapacityNeed(name, StepTrigger.LOAD_ROSE, rate * 1.1, rate, "load rose")
    recording = RecordingSolver(solver)
    step = draft_step(base, [call], recording, base.snapshot.at, None)
    return (note_calls(base.snapshot, [call]), replace(step.decision, drafts=tuple(recording.drafts))) if step else None


def _recorded(snapshot: Snapshot, decision: Decision, generation: int) -> Record:
    answer = decision.answer
    return Record(
        generation, decision.lane, answer.outcome, snapshot, decision.drafts, dict(versions()), decision.plan,
        dict(decision.desired),
    )  # fmt: skip


def replayed(folder: Path) -> Iterator[str]:
    """What differs, by file."""
    solver = Inline()
    for file in sorted(folder.glob("*.json")):
        told = replay(read_record(file.read_bytes()), solver)
        if not told.is_identical:
            yield f"{file.stem}: {told.difference}"


@contextmanager
def busy_loop() -> Iterator[None]:
    """Somebody else's work, at a priority far above ours."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"], start_new_session=True) as loop:
        try:
            yield
        finally:
            loop.kill()


def prove(cycles: int) -> Seen:
    """Record, then replay elsewhere."""
    seen = Seen()
    with TemporaryDirectory() as name:
        folder, size = Path(name), 0
        solver = Solver()
        try:
            for record in decisions(cycles, solver):
                body = write_record(record)
                size += len(body)
                (folder / f"{record.generation:06}.json").write_bytes(body)
                cut = " cut by seconds" if any(draft.counted.get("cut") for draft in record.drafts) else ""
                seen.kinds[f"{record.lane}{cut}"] += 1
        finally:
            solver.close()
        seen.bytes_a_record = size / cycles
        seen.differences = _elsewhere(name)
    return seen


def _elsewhere(folder: str) -> list[str]:
    """Returns what another program finds different, next to a busy loop."""
    command = [sys.executable, "-m", "tests.proofs.replays", "--replay", folder]
    pipe = subprocess.PIPE
    # In a session of its own: where the kernel shares its time by session, nice 19 would otherwise mean the little
    # that all other tests leave, which may be nothing for minutes.
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as program:
        assert program.stdin is not None and program.stdout is not None
        # Its imports would take minutes next to the loop, and prove nothing.
        assert program.stdout.readline() == READY, "it ended before it was ready; its errors are above"
        with busy_loop():
            found, _ = program.communicate(START)
    assert program.returncode == 0, "its errors are above"
    return found.splitlines()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=1000)
    parser.add_argument("--replay", type=Path)
    args = parser.parse_args()
    if args.replay:
        read_all()
        print(READY, end="", flush=True)
        sys.stdin.readline()
        os.setpriority(os.PRIO_PROCESS, 0, 19)
        for line in replayed(args.replay):
            print(line)
        return
    seen = prove(args.cycles)
    print("\n".join([*seen.differences, str(seen)]))
    sys.exit(bool(seen.differences))


if __name__ == "__main__":
    main()
