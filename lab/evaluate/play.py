"""Runs evaluations on several processes; which process runs what changes no result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing.queues import Queue
from typing import Protocol, TypeVar

from lab.evaluate.measured import EvaluationResult, EvaluationRun, run_evaluation
from simulation.own_databases import own_databases
from solvers.planning.workers import FORK, Worker, gather

Say = Callable[[str], None]
AnyRun = TypeVar("AnyRun")


class NamedResult(Protocol):
    """The result of a run, with what progress names it by."""

    @property
    def experiment(self) -> str: ...

    @property
    def planner(self) -> str: ...

    @property
    def seed(self) -> int: ...


AnyResult = TypeVar("AnyResult", bound=NamedResult)


def play(runs: Sequence[EvaluationRun], processes: int, say: Say) -> list[EvaluationResult]:
    """Returns the result of each run, in their order; each has a database of its own."""

    def results(numbers: Iterator[int]) -> Iterator[tuple[int, EvaluationResult]]:
        with own_databases("gpuwright-evaluate-") as databases:
            for number in numbers:
                with databases.one() as url:
                    yield number, run_evaluation(runs[number], url)

    return _gathered(len(runs), processes, results, say)


def play_without_databases(
    runs: Sequence[AnyRun], measure: Callable[[AnyRun], AnyResult], processes: int, say: Say
) -> list[AnyResult]:
    """Returns the result of each run, in their order."""
    return _gathered(len(runs), processes, lambda numbers: ((at, measure(runs[at])) for at in numbers), say)


def _gathered(
    count: int, processes: int, results: Callable[[Iterator[int]], Iterable[tuple[int, AnyResult]]], say: Say
) -> list[AnyResult]:
    orders: Queue[int | None] = FORK.Queue()
    for number in [*range(count), *[None] * processes]:
        orders.put(number)
    workers = [Worker(f"evaluation {number}", iter(results(iter(orders.get, None)))) for number in range(processes)]
    found: dict[int, AnyResult] = {}
    for number, result in gather(workers, None):
        found[number] = result
        say(f"{len(found)} of {count}: {result.experiment}, {result.planner}, seed {result.seed}")
    if len(found) < count:
        raise RuntimeError("a process that runs evaluations failed; its output says why")
    return [found[number] for number in range(count)]
