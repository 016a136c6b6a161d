"""The placement of jobs on GPUs: adds up the cost of each step, and can take it back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from solvers.planning.jobs.arrays import JobBoard, trial
from solvers.planning.jobs.kernels import best_home, settle, try_beside
from solvers.planning.jobs.room import Room
from solvers.planning.problem import Job, Policy

Value: TypeAlias = tuple[float, int, float]  # jobCost, jobs that wait, sum of 1 / units per second

NEAR_SHARE = 1e-9  # what counts as equal cost, relative
FRUGAL_WATT_PRICE = 1e-12  # a price of watts that only says: fewer first
MOST_HOME_GPUS = 2000  # GPUs tried for a job where energy has a price, and no quick look spares any


@dataclass
class JobPlacement:
    """`tries` is the number of splits of a GPU to try; where there are more, a split is grown step by step."""

    room: Room
    tries: int
    board: JobBoard = field(init=False)
    cost: float = field(init=False)  # jobCost: GPUs opened, energy above idle, and jobs that do not run
    waits: int = field(init=False)  # jobs that run nowhere
    seconds: float = 0.0  # the sum of 1 / units per second
    work: int = 0
    left_out: set[int] = field(default_factory=set)  # jobs that must stay where there is no room

    def __post_init__(self) -> None:
        room, policy = self.room, self.room.problem.policy
        self.board = room.board()
        self._trial, self._gain = trial(), np.zeros(3)
        self._journal: list[tuple[int, list[int]]] = []
        self.energy_price = policy.energy_price_per_kwh / 1000  # a watt, an hour
        # Under a budget another job may need every watt: jobs take the fewest first, and the rest is spent at the end.
        self.frugality = (
            max(self.energy_price, FRUGAL_WATT_PRICE) if policy.power_budget_w is not None else self.energy_price
        )
        self.penalty = [penalty(job, policy) for job in room.jobs]
        self.cost, self.waits = sum(self.penalty), len(room.jobs)
        self.pools: dict[tuple[int, float], list[int]] = {}  # GPUs that would have to be opened, by type and price
        for gpu in np.flatnonzero(room.fleet.price > 0):
            self.pools.setdefault((int(room.fleet.kind[gpu]), float(room.fleet.price[gpu])), []).append(int(gpu))

    @property
    def value(self) -> Value:
        """Returns what the search minimises."""
        return self.cost, self.waits, self.seconds

    def on(self, gpu: int) -> list[int]:
        """Returns its jobs, in the order in which they came."""
        return [int(job) for job in self.board.job[gpu, : self.board.taken[gpu]]]

    def sharing(self, gpu: int) -> list[int]:
        """Returns the jobs that pay together for a GPU: those on it, or on its node where that is billed whole."""
        return [job for other in self.room.opened_with[gpu] for job in self.on(other)]

    def waiting(self) -> list[int]:
        """Returns the jobs without a place, the most expensive to leave waiting first."""
        found = [int(job) for job in np.flatnonzero(self.board.home < 0) if int(job) not in self.left_out]
        return sorted(found, key=lambda job: (-self.penalty[job], job))

    def movable(self) -> list[int]:
        """Returns the placed jobs that may run elsewhere."""
        return [int(job) for job in np.flatnonzero(self.board.home >= 0) if int(job) not in self.room.stays]

    # Steps

    def put(self, job: int, gpu: int) -> bool:
        """Puts a job next to those on this GPU, opening it if necessary."""
        return self.fits(job, gpu) and self._become(gpu, [*self.on(gpu), job])

    def put_all(self, jobs: list[int], gpu: int) -> bool:
        """Puts these jobs, and no others, on this GPU at once."""
        free = all(self.board.home[job] in (-1, gpu) for job in jobs)
        kind = self.room.fleet.kind[gpu]
        known = all(self.room.work.profile[job, kind] >= 0 for job in jobs)
        return free and known and len(jobs) <= self.room.fleet.seats[gpu] and self._become(gpu, jobs)

    def take(self, job: int) -> bool:
        """Takes a job off its GPU, whose other jobs share the room again; False if they cannot run without it.

        Where shares are priced, strangers on the SMs that it leaves may slow a service too much.
        """
        gpu = int(self.board.home[job])
        return self._become(gpu, [other for other in self.on(gpu) if other != job])

    def empty(self, gpu: int) -> None:
        """Takes all jobs off a GPU, and off those that are paid with it."""
        for other in self.room.opened_with[gpu]:
            self._become(other, [])

    def _become(self, gpu: int, jobs: list[int], is_undone: bool = False) -> bool:
        board, price, before = self.board, float(self.room.fleet.price[gpu]), self.on(gpu)
        watts, seconds = float(board.watts[gpu]), float(board.seconds[gpu])
        others = price > 0.0 and any(board.taken[other] for other in self.room.opened_with[gpu] if other != gpu)
        self._trial.job[: len(jobs)] = jobs
        count, fleet, work = len(jobs), self.room.fleet, self.room.work
        if not settle(fleet, work, board, gpu, count, self.frugality, self.tries, self._trial):
            return False
        if not is_undone:
            self._journal.append((gpu, before))
        self.cost += self.energy_price * (float(board.watts[gpu]) - watts)
        if price > 0.0 and not others:
            self.cost += price * ((count > 0) - bool(before))
            board.is_open[list(self.room.opened_with[gpu])] = count > 0
        self.cost += sum(self.penalty[job] for job in before) - sum(self.penalty[job] for job in jobs)
        self.waits += len(before) - count
        self.seconds += float(board.seconds[gpu]) - seconds
        return True

    def spend(self) -> None:
        """Spends the watts that a budget still leaves on jobs that run faster with them, GPU by GPU."""
        self.frugality = self.energy_price
        for gpu in np.flatnonzero(self.board.taken > 0):
            self._become(int(gpu), self.on(int(gpu)))

    def mark(self) -> tuple[int, float, float]:
        """Returns a mark for `back`."""
        return len(self._journal), self.cost, self.seconds

    def back(self, mark: tuple[int, float, float]) -> None:
        """Undoes every step since the mark."""
        while len(self._journal) > mark[0]:
            gpu, jobs = self._journal.pop()
            self._become(gpu, jobs, is_undone=True)
        self.cost, self.seconds = mark[1:]

    # Looks

    def fits(self, job: int, gpu: int) -> bool:
        """Returns whether a job may run next to those on a GPU; `added` then returns what that adds."""
        self.work += 1
        fleet, work = self.room.fleet, self.room.work
        return bool(try_beside(fleet, work, self.board, gpu, job, self.frugality, self.tries, self._trial))

    def added(self, gpu: int) -> tuple[float, float]:
        """Returns the cost, without the GPU's price, and the seconds that the last fit would add."""
        watts, seconds = (float(value) for value in self._trial.about)
        return self.energy_price * (watts - self.board.watts[gpu]), seconds - float(self.board.seconds[gpu])

    def home(self, job: int, but: int = -1) -> tuple[int, float, float]:
        """Returns the open GPU that adds least, or -1, with the cost and the seconds that it adds."""
        most = MOST_HOME_GPUS if self.frugality else len(self.room.places)
        gpu = best_home(
            self.room.fleet, self.room.work, self.board, job, but, self.frugality, self.tries, most, self._gain,
            self._trial,
        )  # fmt: skip
        self.work += 1 + int(self._gain[2])
        return int(gpu), self.energy_price * float(self._gain[0]), float(self._gain[1])

    def openable(self, job: int) -> list[int]:
        """Returns, of each type and price that it may open, the first empty GPU whose node has room for it."""
        room, found = self.room, []
        for (kind, price), gpus in self.pools.items():
            profile = room.work.profile[job, kind]
            if profile < 0 or not may_open(room.jobs[job], price):
                continue
            cores, hosted = room.work.cpu_cores[profile], room.work.host_memory_gib[profile]
            for gpu in gpus:
                node = room.fleet.node[gpu]
                if (
                    not self.board.is_open[gpu]
                    and cores <= self.board.cpu_cores[node]
                    and hosted <= self.board.host_memory_gib[node]
                ):
                    found.append(gpu)
                    break
        return found


def less(value: Value, other: Value) -> bool:
    """Returns whether the first value is less: by cost, then by waiting jobs, then by seconds a unit."""
    if abs(value[0] - other[0]) > NEAR_SHARE * max(1.0, abs(other[0])):
        return value[0] < other[0]
    if value[1] != other[1]:
        return value[1] < other[1]
    return value[2] < other[2] * (1 - NEAR_SHARE)


def penalty(job: Job, policy: Policy) -> float:
    """Returns the cost an hour of a job that does not run."""
    if job.deadline is not None:
        return policy.unplaced_price * job.priority / 100
    return max(policy.waiting_price * job.priority / 100, job.max_price_per_hour or 0.0)


def may_open(job: Job, price: float) -> bool:
    """Returns whether a GPU at this price may be opened for a job."""
    if job.max_price_per_hour is not None:
        return price <= job.max_price_per_hour
    return job.deadline is not None
