"""A running plan as arrays, line by line beside its instances, and every change to it can be taken back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.judge.readings import value_at
from solvers.planning.problem import Instance, PlacedJob, Problem
from solvers.planning.replan.kernels import Beside, bear, execs, find, roomy, stack
from solvers.planning.replan.room import SpareOptions
from solvers.planning.search.arrays import MOST_RESIDENTS, Board, TableArrays
from solvers.planning.search.tables import Floats, Ints, Tables
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
    homes: list[dict[int, int]]  # of each service: GPU -> how many stand there
    number_of: dict[tuple[str, int], int]  # GPU by place
    place_of: list[tuple[str, int]]
    options: SpareOptions
    found: Ints
    guesses: Floats
    told: Floats  # [GPU, slot] the rate of its line; 0 for a new one
    told_batch: Ints  # [GPU, slot] the batch of its line; -1 for a new one
    unsure: NDArray[np.bool_]  # GPUs of whom it is not known how much more pressure they bear
    saved: dict[int, Row] = field(default_factory=dict)  # GPUs as they were before the change
    touched: set[int] = field(default_factory=set)  # services that change
    seated: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)  # what `seats` found, while it is so
    stirred: set[int] = field(default_factory=set)  # GPUs on which somebody starts, stops or takes other SMs

    # Residents come and go

    def save(self, gpu: int) -> None:
        """Remember a GPU before its first change."""
        if gpu not in self.saved:
            b, x, n = self.b, self.x, int(self.b.count[gpu])
            self.saved[gpu] = (
                n, float(b.clock[gpu]), b.offer[gpu, :n].copy(), b.sm[gpu, :n].copy(), b.batch[gpu, :n].copy(),
                b.cap[gpu, :n].copy(), x.memory[gpu, :n].copy(), list(self.lines[gpu]),
            )  # fmt: skip

    def restore(self) -> None:
        """All saved GPUs as they were."""
        for gpu, (count, clock, offer, sm, batch, cap, memory, lines) in list(self.saved.items()):
            while self.b.count[gpu]:
                self.stop(gpu, int(self.b.count[gpu]) - 1)
            self.b.clock[gpu] = clock if count else 1.0
            for k in range(count):
                self.start(gpu, int(offer[k]), int(sm[k]), int(batch[k]), float(memory[k]), lines[k])
            self.b.cap[gpu, :count] = cap
            for k in range(count):
                self._rate_as_told(gpu, k)
        for service in self.touched:
            for gpu, slot in zip(*self.seats(service), strict=True):
                self._rate_as_told(int(gpu), int(slot))
        self.forget()

    def _rate_as_told(self, gpu: int, slot: int) -> None:
        line = self.lines[gpu][slot]
        assert line, "what is taken back was at rest"
        self.x.rate[gpu, slot] = line.rate_per_second

    def forget(self) -> None:
        """What is now is what was before the next change."""
        self.doubt()
        self.saved, self.stirred, self.touched = {}, set(), set()

    def doubt(self) -> None:
        """Whoever stands beside a changing service may bear more than before, or less."""
        self.unsure[list(self.saved)] = True
        for service in self.touched:
            self.unsure[self.seats(service)[0]] = True

    def start(self, gpu: int, offer: int, sm: int, batch: int, memory: float, line: Instance | None = None) -> int:
        """One more on a GPU; its slot."""
        self.save(gpu)
        self.stirred.add(gpu)
        b, x, slot = self.b, self.x, int(self.b.count[gpu])
        b.offer[gpu, slot], b.sm[gpu, slot], b.batch[gpu, slot] = offer, sm, batch
        b.cap[gpu, slot], x.rate[gpu, slot], x.memory[gpu, slot] = 0.0, 0.0, memory
        self.told[gpu, slot], self.told_batch[gpu, slot] = (line.rate_per_second, batch) if line else (0.0, -1)
        b.count[gpu] = slot + 1
        self.seated.pop(int(self.w.offer_service[offer]), None)
        self._count(gpu, offer, sm, 1)
        self.lines[gpu].append(line)
        return slot

    def stop(self, gpu: int, slot: int) -> None:
        """One leaves; the last takes its slot."""
        self.save(gpu)
        self.stirred.add(gpu)
        b, x, last = self.b, self.x, int(self.b.count[gpu]) - 1
        for service in self.w.offer_service[b.offer[gpu, : last + 1]].tolist():
            self.seated.pop(service, None)
        self._count(gpu, int(b.offer[gpu, slot]), int(b.sm[gpu, slot]), -1)
        for rows in (b.offer, b.sm, b.batch, b.cap, x.rate, x.memory, self.told, self.told_batch):
            rows[gpu, slot] = rows[gpu, last]
        lines = self.lines[gpu]
        lines[slot] = lines[last]
        lines.pop()
        b.count[gpu] = last
        if last == 0:
            b.clock[gpu] = 1.0

    def reshape(self, gpu: int, slot: int, sm: int, batch: int) -> None:
        """One takes more SMs, or another batch, and the memory that it needs."""
        self.save(gpu)
        if sm != self.b.sm[gpu, slot]:
            self.stirred.add(gpu)
        offer = int(self.b.offer[gpu, slot])
        self._count(gpu, offer, int(self.b.sm[gpu, slot]), -1)
        self._count(gpu, offer, sm, 1)
        self.b.sm[gpu, slot], self.b.batch[gpu, slot] = sm, batch
        needed = float(self.w.memory_gib[self.w.offer_profile[offer], batch])
        self.x.memory[gpu, slot] = max(float(self.x.memory[gpu, slot]), needed)

    def tell(self, gpu: int, slot: int, line: Instance) -> None:
        """From now on this is its line."""
        self.save(gpu)
        self.lines[gpu][slot] = line
        self.told[gpu, slot], self.told_batch[gpu, slot] = line.rate_per_second, self.b.batch[gpu, slot]

    def filled(self, gpus: Iterable[int]) -> None:
        """Patterns came to these empty GPUs by the board alone."""
        for gpu in map(int, gpus):
            count = int(self.b.count[gpu])
            pattern = [
                (int(self.b.offer[gpu, k]), int(self.b.sm[gpu, k]), int(self.b.batch[gpu, k])) for k in range(count)
            ]
            caps = self.b.cap[gpu, :count].copy()
            for offer, _, _ in pattern:  # the board has counted what nodes give, and so shall we
                profile, node = self.w.offer_profile[offer], self.b.node[gpu]
                self.b.cpu[node] += self.w.cpu_cores[profile]
                self.b.host[node] += self.w.host_memory_gib[profile]
            self.b.count[gpu] = 0
            for offer, sm, batch in pattern:
                self.start(gpu, offer, sm, batch, float(self.w.memory_gib[self.w.offer_profile[offer], batch]))
            self.b.cap[gpu, :count] = self.x.rate[gpu, :count] = caps

    def _count(self, gpu: int, offer: int, sm: int, sign: int) -> None:
        """What a start (1) or a stop (-1) does to node, tenant and home."""
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

    # Looking at it

    def seats(self, service: int) -> tuple[Ints, Ints]:
        """GPU and slot of each of its instances."""
        known = self.seated.get(service)
        if known is None:
            home = self.homes[service]
            gpus = np.fromiter(home, dtype=np.int64, count=len(home))
            gpus.sort()
            count = sum(home.values())
            known = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
            find(self.w, self.b, service, gpus, *known)
            self.seated[service] = known
        return known

    def roomy(self, least: int) -> Ints:
        """GPUs in use with so many SM% to spare, whose residents bear somebody more."""
        gpus = self.found[: roomy(self.b, self.x, least, self.found)].copy()
        unsure = gpus[self.unsure[gpus]]
        bear(self.w, self.b, self.x, unsure)
        self.unsure[unsure] = False
        return gpus[self.x.headroom[gpus] > 0]

    def restack(self) -> None:
        """List the GPUs that nothing runs on."""
        pools = self.shop.pools
        stack(self.b, self.x, pools.start, pools.empty, pools.empties)

    def exec_ms(self, gpus: Sequence[int], slots: Sequence[int]) -> Floats:
        """Execution times of these residents."""
        into = np.zeros(len(gpus))
        execs(self.w, self.b, self.x, np.array(gpus, dtype=np.int64), np.array(slots, dtype=np.int64), into)
        return into


def desk(t: Tables, shop: Workshop, jobs: Sequence[PlacedJob]) -> RunningBoard:
    """Nobody yet, beside these jobs."""
    # Rates and limits are ours to change: the tables stay as they were made.
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
        price=np.array([pool.price_per_hour for pool in t.pools for _ in pool.gpus], dtype=np.float64),
        value=np.array([pool.price_per_hour for pool in t.pools], dtype=np.float64)[b.pool] + shop.pools.extra[b.pool],
        job_sm=np.zeros(gpus, dtype=np.int64),
        job_memory=np.zeros(gpus),
        job_pressure=np.zeros(gpus),
        job_count=np.zeros(gpus, dtype=np.int64),
        job_watts=np.zeros(gpus),
        most_pressure=np.full(gpus, np.inf),
        headroom=np.full(gpus, np.inf),
        gpus_left=np.array(
            [np.inf if one is None or one.gpus is None else one.gpus for one in limits], dtype=np.float64
        ),
        price_left=np.array(
            [np.inf if one is None or one.price_per_hour is None else one.price_per_hour for one in limits],
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
    gpu = d.number_of.get(placed.place)
    profile = problem.jobs[placed.job].profiles.get(problem.nodes[placed.node].gpu_type)
    if gpu is None or profile is None:
        return
    demand, x = profile.demand, d.x
    x.job_sm[gpu] += placed.sm_percent
    x.job_memory[gpu] += placed.memory_gib
    x.job_pressure[gpu] += value_at(demand.pressure, placed.sm_percent)
    x.job_count[gpu] += 1
    x.job_watts[gpu] += value_at(demand.power_w, placed.sm_percent)  # at the highest clock: no less than it draws
    d.b.cpu[d.b.node[gpu]] -= demand.cpu_cores
    d.b.host[d.b.node[gpu]] -= demand.host_memory_gib
    if problem.jobs[placed.job].deadline is not None:
        x.most_pressure[gpu] = 0.0  # until who runs beside it is known
