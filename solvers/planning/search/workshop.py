"""The workshop in which plans are put together: tables, a board, and the arrays that compiled loops write on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from solvers.planning.fleet.grids import Floats, Ints
from solvers.planning.pressures import Pressure
from solvers.planning.search.arrays import MOST_RESIDENTS, Board, Home, TableArrays, empty_board, no_home, world
from solvers.planning.search.bill import NodeBill, node_bill
from solvers.planning.search.capacity import rate_table, sm_grid
from solvers.planning.search.costs import churn_on, costs_of, price_unserved
from solvers.planning.search.fill import Pools, Tabled, clear, fill, put
from solvers.planning.search.improve import improve, restack
from solvers.planning.search.pattern import GpuPattern, PatternScratch, pattern, scratch, settle_whole
from solvers.planning.search.tables import Tables

ROOM_GPUS = 64  # refilled at once by the local search
FEW_POINTS = 3  # of a profile's range in a table: with fewer, the table has its ends, too


ColumnKey: TypeAlias = tuple[int, float, bytes, bytes]


class PatternColumn(NamedTuple):
    """A pattern on a GPU of a pool: the residents, their SM% and batches, and the rates they carry."""

    pool: int
    offers: Ints
    sms: Ints
    batches: Ints
    caps: Floats
    clock: float  # highest clock / clock
    cost: float
    watts: float  # all busy, above idle

    @property
    def key(self) -> ColumnKey:
        return (self.pool, self.clock, self.offers.tobytes(), self.sms.tobytes())

    def only(self, who: NDArray[np.bool_]) -> PatternColumn:
        """Returns the column with these residents alone; without the others they carry at least as much."""
        return self._replace(offers=self.offers[who], sms=self.sms[who], batches=self.batches[who], caps=self.caps[who])


@dataclass
class Workshop:
    """One planner's tools. A board belongs to one workshop, and is valid at every moment."""

    t: Tables
    w: TableArrays
    board: Board
    home: Home
    pools: Pools
    local: Pools
    counts: Floats
    tabled: Tabled
    by_step: dict[int, Tabled]  # of SM%
    scratch: PatternScratch
    pattern: GpuPattern
    undo: Board
    filled: Ints
    nodes: NodeBill

    def look_at(self, step: int) -> None:
        """Tabulates every `step` of SM% from now on."""
        if step not in self.by_step:
            self.by_step[step] = tabulated(self.t, self.w, step, self.tabled.levels.tolist())
        self.read(self.by_step[step])

    def read(self, tabled: Tabled) -> None:
        """Takes these rates from now on."""
        self.tabled = tabled
        if len(tabled.sms) > len(self.scratch.best):
            self.scratch = scratch(self.w, len(tabled.levels), len(tabled.sms))

    def fill(self, prices: Floats, need: Floats, worst: float = 0.0) -> Ints:
        """Puts patterns on empty GPUs until `need`, which it changes, is met; returns the GPUs used."""
        done = fill(
            self.w, self.board, self.pools, self.tabled, prices, need, 0.0, worst, self.scratch, self.pattern,
            self.filled,
        )  # fmt: skip
        return self.filled[:done].copy()

    def settle(self, site: int, prices: Floats, offers: Ints, sms: Ints) -> int:
        """Makes a pattern for an empty GPU of a site, without residents that don't fit there; returns how many stay."""
        p, count = self.pattern, len(offers)
        p.offer[:count], p.sm[:count], p.about[0] = offers, sms, count
        settle_whole(self.w, site, prices, p, self.scratch.worth)
        return int(p.about[0])

    def clear(self, gpus: Iterable[int]) -> None:
        """Empties these GPUs."""
        for gpu in gpus:
            clear(self.w, self.board, gpu)
        self.restack()

    def clear_all(self) -> None:
        self.clear(self.used.tolist())
        self.board.cover[:] = 0.0  # what sums of floats have left

    def restack(self) -> None:
        for pool in range(len(self.pools.price)):
            restack(self.board, self.pools, pool)

    def place(self, column: PatternColumn) -> bool:
        """Puts a column on the next empty GPU of its pool, if that GPU's node has room."""
        if self.pools.empties[column.pool] == 0:
            return False
        top = self.pools.start[column.pool] + self.pools.empties[column.pool] - 1
        gpu = int(self.pools.empty[top])
        if not self.has_room(gpu, column):
            return False
        self.seat(gpu, column)
        self.pools.empties[column.pool] -= 1
        return True

    def has_room(self, gpu: int, column: PatternColumn) -> bool:
        """Tells if the node of this GPU has the cores and the memory for these residents."""
        b, profiles = self.board, self.t.offer_profile[column.offers]
        node = b.node[gpu]
        cores, hosted_gib = self.t.cpu_cores[profiles].sum(), self.t.host_memory_gib[profiles].sum()
        return bool(cores <= b.cpu[node] and hosted_gib <= b.host[node])

    def seat(self, gpu: int, column: PatternColumn) -> None:
        """Puts the residents of a column on this empty GPU."""
        p, count = self.pattern, len(column.offers)
        p.offer[:count], p.sm[:count] = column.offers, column.sms
        p.batch[:count], p.cap[:count] = column.batches, column.caps
        p.about[0], p.about[2] = count, column.clock
        put(self.w, self.board, gpu, p)

    def empty(self, gpu: int) -> None:
        """Empties a GPU; `restack` then lists it as empty."""
        clear(self.w, self.board, gpu)

    def column(self, gpu: int) -> PatternColumn:
        """Returns the residents of a GPU."""
        return self.columns(np.array([gpu]))[0]

    def columns(self, gpus: Ints) -> list[PatternColumn]:
        """Returns the residents of each of these GPUs."""
        b = self.board
        costs, watts = self.costs(gpus)
        offers, sms, batches, caps = b.offer[gpus], b.sm[gpus], b.batch[gpus], b.cap[gpus]
        facts = zip(
            b.pool[gpus].tolist(), b.count[gpus].tolist(), b.clock[gpus].tolist(), costs.tolist(), watts.tolist(),
            strict=True,
        )  # fmt: skip
        return [
            PatternColumn(
                pool, offers[i, :n].copy(), sms[i, :n].copy(), batches[i, :n].copy(), caps[i, :n].copy(), *rest
            )
            for i, (pool, n, *rest) in enumerate(facts)
        ]

    def costs(self, gpus: Ints) -> tuple[Floats, Floats]:
        """Returns the cost and the busy watts of each of these GPUs."""
        costs, watts = np.zeros(len(gpus)), np.zeros(len(gpus))
        costs_of(self.w, self.board, self.pools, gpus.astype(np.int64), costs, watts)
        return costs, watts

    def improve(
        self, prices: Floats, extra: Floats, seed: int, tries: int, heat: float, lack: float | None = None
    ) -> float:
        """Empties a few GPUs and refills them, so many times; returns what that saves.

        With a `lack`, what is missing costs so many times its price; without one, what it truly costs.
        """
        missed, floor, stop = (self.w.unserved_price, 1.0, 0.0) if lack is None else (lack * prices, 0.0, 1 / lack)
        saved: float = improve(
            self.w, self.board, self.home, self.pools, self.local, self.tabled, prices, extra, seed, tries,
            heat, missed, floor, stop, self.scratch, self.pattern, self.undo, self.filled[:ROOM_GPUS],
        )  # fmt: skip
        return saved

    def kept_board(self) -> Board:
        """Returns a copy of the board."""
        return Board._make(values.copy() for values in self.board)

    def bring_back(self, kept: Board) -> None:
        """Makes the board what it was when it was copied."""
        for values, old in zip(self.board, kept, strict=True):
            values[...] = old
        self.restack()

    @property
    def used(self) -> Ints:
        return np.flatnonzero(self.board.count > 0)

    @property
    def need(self) -> Floats:
        """Returns the rate of each service that no resident carries."""
        need = np.zeros(len(self.t.services))
        price_unserved(self.w, self.board, need)
        return need

    @property
    def lacking(self) -> Floats:
        """Returns the need, without that of services that no GPU can serve."""
        return np.where(self.tabled.top > 0.0, self.need, 0.0)

    @property
    def cost(self) -> float:
        """Returns the cost of the board, as the loops count it, with its churn and everything it leaves unserved."""
        missed = price_unserved(self.w, self.board, np.zeros(len(self.t.services)))
        return float(self.costs(self.used)[0].sum() + missed) + churn_on(self.board, self.home)

    @property
    def bill(self) -> float:
        """Returns the cost of the board, with all of each node that is billed whole."""
        return self.cost + self.nodes.beyond(self.board)


def workshop(t: Tables, step: int, levels: Sequence[Pressure]) -> Workshop:
    """Returns a workshop of the whole fleet, with an empty board."""
    w, board = world(t), empty_board(t)
    energy = t.problem.policy.energy_price_per_kwh / 1000
    shares = t.problem.policy.pricing == "share"
    price = np.array([pool.price_per_hour for pool in t.pools])
    site = np.array([pool.site for pool in t.pools], dtype=np.int64)
    start = np.cumsum([0, *(len(pool.gpus) for pool in t.pools)]).astype(np.int64)
    pools = Pools(
        price=(np.zeros(len(price)) if shares else price) + energy * w.site_idle_w[site],
        extra=np.zeros(len(price)),
        sm_price=price / 100 if shares else np.zeros(len(price)),
        site=site,
        start=start,
        empty=np.zeros(len(board.pool), dtype=np.int64),
        empties=np.zeros(len(price), dtype=np.int64),
        closed=closed_gpus(t),
    )
    local = pools._replace(
        extra=np.zeros(len(price)),
        start=np.arange(len(price) + 1, dtype=np.int64) * ROOM_GPUS,
        empty=np.zeros(len(price) * ROOM_GPUS, dtype=np.int64),
        empties=np.zeros(len(price), dtype=np.int64),
    )
    undo = board._replace(
        count=np.zeros(ROOM_GPUS, dtype=np.int64),
        clock=np.ones(ROOM_GPUS),
        offer=np.zeros((ROOM_GPUS, MOST_RESIDENTS), dtype=np.int64),
        sm=np.zeros((ROOM_GPUS, MOST_RESIDENTS), dtype=np.int64),
        batch=np.zeros((ROOM_GPUS, MOST_RESIDENTS), dtype=np.int64),
        cap=np.zeros((ROOM_GPUS, MOST_RESIDENTS)),
    )
    tabled = tabulated(t, w, step, levels)
    found = Workshop(
        t, w, board, no_home(len(board.pool)), pools, local, np.diff(start).astype(np.float64), tabled, {step: tabled},
        scratch(w, len(levels), len(tabled.sms)), pattern(), undo,
        np.zeros(max(len(board.pool), ROOM_GPUS), dtype=np.int64), node_bill(t, board),
    )  # fmt: skip
    found.restack()
    return found


def closed_gpus(t: Tables) -> Ints:
    """Returns 1 for each GPU where a job runs that must stay: services leave it to the job."""
    state = t.problem.state
    staying = [job for job in state.jobs if not t.problem.jobs[job.job].is_preemptible] if state else []
    stays = {place for job in staying for place in job.places}
    return np.array([gpu in stays for pool in t.pools for gpu in pool.gpus], dtype=np.int64)


def tabulated(t: Tables, w: TableArrays, step: int, levels: Sequence[Pressure]) -> Tabled:
    """Tabulates every offer's rate at these levels of pressure and at every `step` of SM%."""
    sms, at = sms_seen(t, step), np.array(levels, dtype=np.complex128)
    rates = np.zeros((len(t.offer_service), len(at), len(sms)))
    for site in range(len(t.site_types)):
        rate_table(w, site, sms, at, rates)
    top = np.zeros(len(t.services))
    np.maximum.at(top, t.offer_service, rates.max(axis=(1, 2), initial=0.0))
    return Tabled(sms, at, rates, top)


def sms_seen(t: Tables, step: int) -> Ints:
    """Returns every `step` of SM%, and both ends of a profile that has too few of these."""
    usual = sm_grid(step)
    profiled: NDArray[np.bool_] = np.isfinite(t.exec_ms.min(axis=1))  # [profile, SM%]
    narrow = profiled[profiled[:, usual].sum(axis=1) < FEW_POINTS]
    ends = [np.flatnonzero(row)[[0, -1]] for row in narrow if row.any()]
    return np.unique(np.concatenate([usual, *ends])).astype(np.int64)


def usual_levels(t: Tables, parts: Sequence[float]) -> tuple[Pressure, ...]:
    """Returns levels of pressure, as parts of the pressure of a GPU full of its usual residents."""
    if not len(t.profiles):
        return (0.0,)
    sms = np.array([10, 20, 30, 50])
    density = t.pressure[:, sms] * (100 / sms)
    full = complex(min(float(np.median(density.real)), 8.0), min(float(np.median(density.imag)), 8.0))
    return tuple(part * full for part in parts) if full else (0.0,)
