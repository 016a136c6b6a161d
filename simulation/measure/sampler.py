"""Searches what the fleet could cost in a process of its own, while the simulation goes on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.queues import Queue
from types import TracebackType

from simulation.measure.figures import FreshMoment
from simulation.measure.fresh import bare_problem, find_fresh
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.workers import FORK, Worker, gather

MOST_FRESH_PLANS, MOST_KNOWN_PLANS = 50, 200  # compared again at each sample


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """A moment to search for: its problem, the rates to come, the plan in force, and the plans found since the last."""

    at: float
    problem: Problem
    rates_to_come: Mapping[str, float]
    in_force: Plan
    found: Sequence[Plan]


class FreshSampler:
    """Takes orders at any time, and returns their samples at the end. Each sample knows the fresh plans before it."""

    def __init__(self, work: int, seed: int) -> None:
        self._orders: Queue[SampleOrder | None] = FORK.Queue()
        orders = iter(self._orders.get, None)
        self._worker = Worker("fresh plans", sample(orders, work, seed))

    def __enter__(self) -> FreshSampler:
        self._worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.stop()
        self._orders.cancel_join_thread()
        self._orders.close()

    def order(self, order: SampleOrder) -> None:
        self._orders.put(order)

    def finish(self) -> list[FreshMoment]:
        """Waits for the samples of all orders."""
        self._orders.put(None)
        found = list(gather([self._worker], None))
        if self._worker.failed:
            raise RuntimeError("the process that searches fresh plans failed; its output says why")
        return found


def sample(orders: Iterable[SampleOrder], work: int, seed: int) -> Iterator[FreshMoment]:
    """Yields the sample of each order; only the orders before it change it."""
    fresh_plans: list[Plan] = []
    for order in orders:
        known = [*[*fresh_plans, *order.found][-MOST_KNOWN_PLANS:], order.in_force]
        fresh = find_fresh(order.problem, known, work, seed)
        later = find_fresh(bare_problem(order.problem, order.rates_to_come), [*known, fresh.plan], work, seed)
        fresh_plans = [*fresh_plans, fresh.plan, later.plan][-MOST_FRESH_PLANS:]
        yield FreshMoment(order.at, fresh.per_hour, fresh.bound_per_hour, later.per_hour, later.bound_per_hour)
