"""Searches what the fleet could cost in processes of their own, while the simulation goes on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.queues import Queue
from types import TracebackType

from simulation.measure.figures import FreshMoment
from simulation.measure.fresh import bare_problem, cheapest, search_fresh
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.workers import FORK, Worker, gather

MOST_FRESH_PLANS, MOST_KNOWN_PLANS = 50, 200  # compared again at each sample
SEARCHES = 2  # of an order: for its rates, and for those to come
NUMBER_BYTES, END = 4, 2**32 - 1  # few enough bytes that a pipe never divides them


@dataclass(frozen=True, slots=True)
class SampleOrder:
    """A moment to search for: its problem, the rates to come, the plan in force, and the plans found since the last."""

    at: float
    problem: Problem
    rates_to_come: Mapping[str, float]
    in_force: Plan
    found: Sequence[Plan]

    @property
    def to_come(self) -> Problem:
        """Returns the problem at the rates to come."""
        return bare_problem(self.problem, self.rates_to_come)


@dataclass(frozen=True, slots=True)
class FreshPlans:
    """The plans found for one order: for its rates, and for the rates to come."""

    planned: Plan
    to_come: Plan


class FreshSampler:
    """Takes orders at any time, and returns their samples at the end. Each sample knows the fresh plans before it.

    Searches depend on their own order alone, so any number of processes finds the same.
    """

    def __init__(self, work: int, seed: int, processes: int) -> None:
        self._given: list[SampleOrder] = []
        self._numbers_out, self._numbers_in = os.pipe()
        # Each process is sent every order: one that died while it waited would keep the others from a common queue.
        self._queues: list[Queue[SampleOrder]] = [FORK.Queue() for _ in range(processes)]
        self._workers = [
            Worker("fresh plans", _search_all(self._numbers_out, queue, work, seed)) for queue in self._queues
        ]

    def __enter__(self) -> FreshSampler:
        for worker in self._workers:
            worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers:
            worker.stop()
        for queue in self._queues:
            queue.cancel_join_thread()
            queue.close()
        os.close(self._numbers_out)
        os.close(self._numbers_in)

    def order(self, order: SampleOrder) -> None:
        for queue in self._queues:
            queue.put(replace(order, found=()))
        self._given.append(order)
        for search in range(SEARCHES):
            self._issue(SEARCHES * (len(self._given) - 1) + search)

    def finish(self) -> list[FreshMoment]:
        """Waits for the samples of all orders."""
        for _ in self._workers:
            self._issue(END)
        searched: dict[int, Plan] = dict(gather(self._workers, None))
        if any(worker.failed for worker in self._workers):
            raise RuntimeError("a process that searches fresh plans failed; its output says why")
        plans = [searched[number] for number in range(SEARCHES * len(self._given))]
        return list(compare(self._given, [*map(FreshPlans, plans[::SEARCHES], plans[1::SEARCHES])]))

    def _issue(self, number: int) -> None:
        os.write(self._numbers_in, number.to_bytes(NUMBER_BYTES, "big"))


def _search_all(numbers: int, queue: Queue[SampleOrder], work: int, seed: int) -> Iterator[tuple[int, Plan]]:
    """Yields what it found at the end: it is read only then, and a full pipe would stop the search.

    Each number stands for one search, and whichever process is free takes the next: some searches are much longer.
    """
    given: list[SampleOrder] = []
    found: list[tuple[int, Plan]] = []
    while (number := int.from_bytes(os.read(numbers, NUMBER_BYTES), "big")) != END:
        at, is_to_come = divmod(number, SEARCHES)
        while len(given) <= at:
            given.append(queue.get())
        found.append((number, search_fresh(given[at].to_come if is_to_come else given[at].problem, work, seed)))
    yield from found


def compare(orders: Sequence[SampleOrder], searched: Sequence[FreshPlans]) -> Iterator[FreshMoment]:
    """Yields the sample of each order; only the orders before it change it."""
    fresh_plans: list[Plan] = []
    for order, found in zip(orders, searched, strict=True):
        known = [*[*fresh_plans, *order.found][-MOST_KNOWN_PLANS:], order.in_force]
        fresh = cheapest(order.problem, found.planned, known)
        later = cheapest(order.to_come, found.to_come, [*known, fresh.plan])
        fresh_plans = [*fresh_plans, fresh.plan, later.plan][-MOST_FRESH_PLANS:]
        yield FreshMoment(order.at, fresh.per_hour, fresh.bound_per_hour, later.per_hour, later.bound_per_hour)
