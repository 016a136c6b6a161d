"""Runs evaluations on several processes; which process runs what changes no result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.queues import Queue

from simulation.evaluate.measured import EvaluationResult, EvaluationRun, run_evaluation
from simulation.own_databases import own_databases
from solvers.planning.workers import FORK, Worker, gather

Say = Callable[[str], None]


def play(runs: Sequence[EvaluationRun], processes: int, say: Say) -> list[EvaluationResult]:
    """Returns the result of each run, in their order."""
    orders: Queue[int | None] = FORK.Queue()
    for number in [*range(len(runs)), *[None] * processes]:
        orders.put(number)
    workers = [Worker(f"evaluation {number}", _results(runs, iter(orders.get, None))) for number in range(processes)]
    found: dict[int, EvaluationResult] = {}
    for number, result in gather(workers, None):
        found[number] = result
        say(f"{len(found)} of {len(runs)}: {result.experiment}, {result.planner}, seed {result.seed}")
    if len(found) < len(runs):
        raise RuntimeError("a process that runs evaluations failed; its output says why")
    return [found[number] for number in range(len(runs))]


def _results(runs: Sequence[EvaluationRun], orders: Iterable[int]) -> Iterator[tuple[int, EvaluationResult]]:
    with own_databases("gpuwright-evaluate-") as databases:
        for number in orders:
            with databases.one() as url:
                yield number, run_evaluation(runs[number], url)
