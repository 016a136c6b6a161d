"""A running plan as arrays next to its instances; every change to it can be taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Instance, PlacedJob, Problem
from solvers.planning.replan.kernels import Beside, bear, execs, find, roomy, stack
from solvers.planning.replan.room import SpareOptions
from solvers.planning.search.arrays import MOST_RESIDENTS, Board, TableArrays
from solvers.planning.search.tables import Tables
from solvers.planning.search.workshop import Workshop

MOST_OPTIONS = 4096
Row: TypeAlias = tuple[int, float, "Ints", "Ints", "Ints", "Floats", "Floats", "list[Instance | None]"]


@dataclass
class RunningBoard:
    """The board of a workshop with what else runs; `lines` holds the instance of each slot, None for a new one."""

    t: Tables
    w: TableArrays
    b: Board
    x: Beside
    shop: Workshop
    lines: list[list[Instance | None]]
    homes: list[dict[int, int]]  # of each service: GPU -> number of its instances there
    number_of: dict[tuple[str, int], int]  # GPU by place
    place_of: list[tuple[str, int]]
    options: SpareOptions
    found: Ints
    guesses: Floats
    line_rate: Floats  # [GPU, slot] the rate of its line; 0 for a new one
    line_batch: Ints  # [GPU, slot] the batch of its line; -1 for a new one
    unsure: NDArray[np.bool_]  # GPUs for which the pressure that they still bear is not known
    saved: dict[int, Row] = field(default_factory=dict)  # GPUs as they were before the change
    touched: set[int] = field(default_factory=set)  # services that change
    seated: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)  # results of `seats` that still hold
    stirred: set[int] = field(default_factory=set)  # GPUs on which an instance starts, stops or takes other SMs

    # Changes

    def save(self, gpu: int) -> None:
        """Copies a GPU before its first change."""
        if gpu not in self.saved:
            self.saved[gpu] = self.row(gpu)

    def row(self, gpu: int) -> Row:
        """Returns a copy of a GPU."""
        b, x, n = self.b, self.x, int(self.b.count[gpu])
        return (
            n, float(b.clock[gpu]), b.offer[gpu, :n].copy(), b.sm[gpu, :n].copy(), b.batch[gpu, :n].copy(),
            b.cap[gpu, :n].copy(), x.memory[gpu, :n].copy(), list(self.lines[gpu]),
        )  # fmt: skip

    def put(self, gpu: int, row: Row) -> None:
        """Makes a GPU what its copy says."""
        count, clock, offer, sm, batch, cap, memory, lines = row
        while self.b.count[gpu]:
            self.stop(gpu, int(self.b.count[gpu]) - 1)
        self.b.clock[gpu] = clock if count else 1.0
        for k in range(count):
            self.start(gpu, int(offer[k]), int(sm[k]), int(batch[k]), float(memory[k]), lines[k])
        self.b.cap[gpu, :count] = cap

    def restore(self) -> None:
        """Puts all saved GPUs back as they were."""
        for gpu, row in list(self.saved.items()):
            self.put(gpu, row)
            for k in range(int(self.b.count[gpu])):
                self._rate_of_line(gpu, k)
        for service in self.touched:
            for gpu, slot in zip(*self.seats(service), strict=True):
                self._rate_of_line(int(gpu), int(slot))
        self.forget()

    def _rate_of_line(self, gpu: int, slot: int) -> None:
        line = self.lines[gpu][slot]
        assert line, "what is taken back was at rest"
        self.x.rate[gpu, slot] = line.rate_per_second

    def forget(self) -> None:
        """Makes the present state the one to which the next change may go back."""
        self.doubt()
        self.saved, self.stirred, self.touched = {}, set(), set()

    def doubt(self) -> None:
        """Marks the neighbours of changing services: they may bear more pressure than before, or less."""
        self.unsure[list(self.saved)] = True
        for service in self.touched:
            self.unsure[self.seats(service)[0]] = True

    def start(self, gpu: int, offer: int, sm: int, batch: int, memory: float, line: Instance | None = None) -> int:
        """Adds an instance to a GPU; returns its slot."""
        self.save(gpu)
        self.stirred.add(gpu)
        b, x, slot = self.b, self.x, int(self.b.count[gpu])
        b.offer[gpu, slot], b.sm[gpu, slot], b.batch[gpu, slot] = offer, sm, batch
        b.cap[gpu, slot], x.rate[gpu, slot], x.memory[gpu, slot] = 0.0, 0.0, memory
        self.line_rate[gpu, slot], self.line_batch[gpu, slot] = (line.rate_per_second, batch) if line else (0.0, -1)
        b.count[gpu] = slot + 1
        self.seated.pop(int(self.w.offer_service[offer]), None)
        self._count(gpu, offer, sm, 1)
        self.lines[gpu].append(line)
        return slot

    def stop(self, gpu: int, slot: int) -> None:
        """Removes an instance; the last of its GPU takes its slot."""
        self.save(gpu)
        self.stirred.add(gpu)
        b, x, last = self.b, self.x, int(self.b.count[gpu]) - 1
        for service in self.w.offer_service[b.offer[gpu, : last + 1]].tolist():
            self.seated.pop(service, None)
        self._count(gpu, int(b.offer[gpu, slot]), int(b.sm[gpu, slot]), -1)
        for rows in (b.offer, b.sm, b.batch, b.cap, x.rate, x.memory, self.line_rate, self.line_batch):
            rows[gpu, slot] = rows[gpu, last]
        lines = self.lines[gpu]
        lines[slot] = lines[last]
        lines.pop()
        b.count[gpu] = last
        if last == 0:
            b.clock[gpu], x.headroom[gpu] = 1.0, np.inf

    def reshape(self, gpu: int, slot: int, sm: int, batch: int) -> None:
        """Gives an instance other SMs or another batch, with the memory that it needs."""
        self.save(gpu)
        if sm != self.b.sm[gpu, slot]:
            self.stirred.add(gpu)
        offer = int(self.b.offer[gpu, slot])
        self._count(gpu, offer, int(self.b.sm[gpu, slot]), -1)
        self._count(gpu, offer, sm, 1)
        self.b.sm[gpu, slot], self.b.batch[gpu, slot] = sm, batch
        needed = float(self.w.memory_gib[self.w.offer_profile[offer], batch])
        self.x.memory[gpu, slot] = max(float(self.x.memory[gpu, slot]), needed)

    def set_lines(self, seats: Sequence[tuple[int, int]], lines: Sequence[Instance]) -> None:
        """Sets the lines of these slots, each given as its GPU and its number."""
        for (gpu, slot), line in zip(seats, lines, strict=True):
            self.save(gpu)
            self.lines[gpu][slot] = line
        at = tuple(np.array(seats, dtype=np.int64).reshape(-1, 2).T)
        self.line_rate[at], self.line_batch[at] = [line.rate_per_second for line in lines], self.b.batch[at]

    def filled(self, gpus: Iterable[int]) -> None:
        """Takes over the patterns that were put on these empty GPUs by the workshop alone."""
        for gpu in map(int, gpus):
            count = int(self.b.count[gpu])
            pattern = [
                (int(self.b.offer[gpu, k]), int(self.b.sm[gpu, k]), int(self.b.batch[gpu, k])) for k in range(count)
            ]
            caps = self.b.cap[gpu, :count].copy()
            for offer, _, _ in pattern:  # the workshop has subtracted it from the node, and `start` does so again
                profile, node = self.w.offer_profile[offer], self.b.node[gpu]
                self.b.cpu[node] += self.w.cpu_cores[profile]
                self.b.host[node] += self.w.host_memory_gib[profile]
            self.b.count[gpu] = 0
            for offer, sm, batch in pattern:
                self.start(gpu, offer, sm, batch, float(self.w.memory_gib[self.w.offer_profile[offer], batch]))
            self.b.cap[gpu, :count] = self.x.rate[gpu, :count] = caps

    def _count(self, gpu: int, offer: int, sm: int, sign: int) -> None:
        """Counts a start (1) or a stop (-1) for the node, the tenant and the service."""
        w, b, service = self.w, self.b, int(self.w.offer_service[offer])
        profile, node, tenant = w.offer_profile[offer], b.node[gpu], w.service_tenant[service]
        b.cpu[node] -= sign * w.cpu_cores[profile]
        b.host[node] -= sign * w.host_memory_gib[profile]
        home = self.homes[service]
        held = home.get(gpu, 0)
        share = sm / 100
        if w.dedicated[service]:
            share = 1.0 if held == (0 if sign > 0 else 1) else 0.0
        self.x.gpus_left[tenant] -= sign * share
        self.x.price_left[tenant] -= sign * share * self.x.price[gpu]
        if held + sign:
            home[gpu] = held + sign
        else:
            del home[gpu]

    # Queries

    def seats(self, service: int) -> tuple[Ints, Ints]:
        """Returns GPU and slot of each instance of a service."""
        known = self.seated.get(service)
        if known is None:
            home = self.homes[service]
            gpus = np.fromiter(home, dtype=np.int64, count=len(home))
            gpus.sort()
            count = sum(home.values())
            known = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            find(self.w.offer_service, self.b.count, self.b.offer, service, gpus, *known)
            self.seated[service] = known
        return known

    def roomy(self, least: int) -> Ints:
        """Returns GPUs in use with so many SM% to spare, whose residents bear more pressure."""
        gpus = self.found[: roomy(self.b, self.x, least, self.found)].copy()
        unsure = gpus[self.unsure[gpus]]
        bear(self.w, self.b, self.x, unsure)
        self.unsure[unsure] = False
        return gpus[self.x.headroom[gpus] > 0]

    def restack(self) -> None:
        """Lists the GPUs on which nothing runs."""
        pools = self.shop.pools
        stack(self.b, self.x, pools.start, pools.empty, pools.empties)

    def list_paid(self) -> bool:
        """Lists only the empty GPUs of nodes billed whole that are paid already; returns False if there are none."""
        b, pools, bill = self.b, self.shop.pools, self.shop.nodes
        if not len(bill.gpus):
            return False
        self.restack()
        paid = np.unique(b.node[bill.gpus[b.count[bill.gpus] > 0]])
        for pool, count in enumerate(pools.empties.tolist()):
            first = int(pools.start[pool])
            listed = pools.empty[first : first + count]
            kept = listed[np.isin(b.node[listed], paid)]
            pools.empty[first : first + len(kept)] = kept
            pools.empties[pool] = len(kept)
        return bool(pools.empties.any())

    def exec_ms(self, gpus: Sequence[int] | Ints, slots: Sequence[int] | Ints) -> Floats:
        """Returns the execution times of these residents."""
        into = np.zeros(len(gpus))
        execs(self.w, self.b, self.x, np.array(gpus, dtype=np.int64), np.array(slots, dtype=np.int64), into)
        return into


def running_board(t: Tables, shop: Workshop, jobs: Sequence[PlacedJob]) -> RunningBoard:
    """Returns a board with these jobs and without instances."""
    # The board changes its rates and limits; the tables stay as they were made.
    w = shop.w._replace(rate=t.rate.copy(), most_rate=shop.w.most_rate.copy())
    shop.w = w
    b, problem = shop.board, t.problem
    gpus = len(b.pool)
    place_of = [place for pool in t.pools for place in pool.gpus]
    tenants = sorted({service.tenant for service in problem.services.values()})
    limits = [problem.limits.get(tenant) for tenant in tenants]
    profiled: NDArray[np.bool_] = np.isfinite(t.exec_ms.min(axis=1))  # [profile, SM%]
    x = Beside(
        rate=np.zeros((gpus, MOST_RESIDENTS)),
        memory=np.zeros((gpus, MOST_RESIDENTS)),
        site=np.array([pool.site for pool in t.pools for _ in pool.gpus], dtype=np.int64),
        price=np.array([problem.nodes[node].price_per_hour for node, _ in place_of], dtype=np.float64),
        value=np.array([pool.price_per_hour for pool in t.pools], dtype=np.float64)[b.pool] + shop.pools.extra[b.pool],
        job_sm=np.zeros(gpus, dtype=np.int64),
        job_memory=np.zeros(gpus),
        job_pressure=np.zeros(gpus, np.complex128),
        job_count=np.zeros(gpus, dtype=np.int64),
        job_watts=np.zeros(gpus),
        most_pressure=np.full(gpus, complex(np.inf, np.inf)),
        headroom=np.full(gpus, complex(np.inf, np.inf)),
        gpus_left=np.array(
            [np.inf if limit is None or limit.gpus is None else limit.gpus for limit in limits], dtype=np.float64
        ),
        price_left=np.array(
            [np.inf if limit is None or limit.price_per_hour is None else limit.price_per_hour for limit in limits],
            dtype=np.float64,
        ),
        least_sm=profiled.argmax(axis=1).astype(np.int64),
        most_sm=(profiled.shape[1] - 1 - profiled[:, ::-1].argmax(axis=1)).astype(np.int64),
    )
    none = np.zeros(MOST_OPTIONS, dtype=np.int64)
    options = SpareOptions(
        none, none.copy(), none.copy(), none.copy(), none.copy(), np.zeros(MOST_OPTIONS), np.zeros(MOST_OPTIONS)
    )
    made = RunningBoard(
        t, w, b, x, shop, [[] for _ in range(gpus)], [{} for _ in t.services],
        {place: gpu for gpu, place in enumerate(place_of)}, place_of, options,
        np.zeros(gpus, dtype=np.int64), np.zeros(gpus), np.zeros((gpus, MOST_RESIDENTS)),
        np.zeros((gpus, MOST_RESIDENTS), dtype=np.int64), np.ones(gpus, dtype=np.bool_),
    )  # fmt: skip
    for job in jobs:
        _seat_job(made, problem, job)
    return made


def _seat_job(d: RunningBoard, problem: Problem, placed: PlacedJob) -> None:
    gpus = [gpu for place in placed.places if (gpu := d.number_of.get(place)) is not None]
    profile = problem.jobs[placed.job].profiles.get(problem.nodes[placed.node].gpu_type)
    if not gpus or profile is None:
        return
    demand, x = profile.demand, d.x
    x.job_sm[gpus] += placed.sm_percent
    x.job_memory[gpus] += placed.memory_gib
    x.job_pressure[gpus] += value_at(demand.pressure, placed.sm_percent)
    x.job_count[gpus] += 1
    x.job_watts[gpus] += value_at(demand.power_w, placed.sm_percent)  # at the highest clock: an upper bound
    d.b.cpu[d.b.node[gpus[0]]] -= demand.cpu_cores
    d.b.host[d.b.node[gpus[0]]] -= demand.host_memory_gib
    if problem.jobs[placed.job].deadline is not None:
        x.most_pressure[gpus] = 0.0  # until its neighbours are known
