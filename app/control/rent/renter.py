"""Decides in each cycle what pools rent and give back, and carries orders out between cycles."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime, timedelta

from sqlalchemy import Connection

from app.access import Principal, Scope
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.leading import Deposed
from app.control.domain.mode import read_modes
from app.control.domain.policy import policy_spec
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import SILENT_SECONDS, DeclaredObject, Snapshot
from app.control.domain.specs import pricing_of
from app.control.measure import metrics
from app.control.rent.hooks import HookCaller, HookOrder
from app.control.rent.question import RentalPool, RentNeed, ask_renting, make_pool, pose_renting
from app.control.rent.shown import describe_pools, find_unordered
from app.control.rent.states import (
    COMING,
    ENDED,
    NodeSight,
    RentedNode,
    RentState,
    RentStep,
    leave,
    look,
    next_call,
    take_answer,
)
from app.control.tell.statuses import SkipVersions, StatusWriter
from app.manifests.model import Key, Kind, Manifest
from app.store.database import clock, lease
from app.store.database.database import Database
from app.store.fleet import cordons, rented
from app.store.world import events, objects
from app.world import occupants
from app.world.declare import declare, delete
from app.world.write import Actor
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.renting import IdleNodes, ReclaimHistory, RentAccount

PLANNER = Actor(Principal("planner", Scope.ADMIN), "planner")
PAUSE = timedelta(seconds=60)  # between two questions to the solver
REST = timedelta(minutes=10)  # of a pool after a refusal: others are asked meanwhile
DRAINED_BY = "planner"

log = logging.getLogger(__name__)
Foresee = Callable[[float], Mapping[str, float]]  # the upper rate of each service so many seconds from now


@dataclass(slots=True)
class Renter:
    """The pools' accounts, which each new leader begins, and the orders, which stay in the database."""

    database: Database
    solver: PlanSolver
    hooks: HookCaller
    skip: SkipVersions
    _accounts: dict[str, RentAccount] = field(default_factory=dict)  # by pool
    _idle: dict[str, IdleNodes] = field(default_factory=dict)
    _asked_at: datetime | None = None
    _has_pools: bool = False  # as the last cycle has seen
    _has_orders: bool = True  # until a reading says that there are none
    _statuses: StatusWriter = field(init=False)

    def __post_init__(self) -> None:
        self._statuses = StatusWriter(self.skip)

    def decide(self, epoch: int, snapshot: Snapshot, problem: Problem, plan: Plan, foresee: Foresee) -> None:
        """Records what is rented and given back from now on; only in mode auto."""
        pools = read_pools(snapshot.declared)
        self._has_pools = bool(pools)
        is_auto = read_modes(snapshot.declared, snapshot.is_held).fleet == "auto"
        now, last = snapshot.at, self._asked_at
        if not pools or not is_auto or (last is not None and timedelta() <= now - last < PAUSE):
            return
        self._asked_at, self._has_orders = now, True
        if last is None:
            return  # nodes that stand there may have yet to report
        pools = add_reclaims(pools, self.database.read(rented.count_reclaims))
        rows = self.database.read(lambda connection: [found for found, _ in read_orders(connection)])
        live = [row for row in rows if row.state not in ENDED]
        need = self._ask(snapshot, problem, pools, rows, foresee)
        if need is None:
            return
        seconds = (now - last).total_seconds()
        orders = [order for pool in pools.values() for order in self._order(pool, live, need, snapshot, seconds)]
        used = need.used | {line.node for line in plan.instances} | {job.node for job in plan.jobs}
        idle = {row.node for row in live if row.state is RentState.JOINED and row.node not in used}
        leaving = [row for pool in pools.values() for row in self._give_back(pool, live, idle, now)]
        self.database.write(lambda connection: _record(connection, epoch, orders, leaving, idle, seconds))

    def _ask(
        self, snapshot: Snapshot, problem: Problem, pools: Mapping[str, RentalPool], rows: Sequence[RentedNode],
        foresee: Foresee,
    ) -> RentNeed | None:  # fmt: skip
        counts = []
        for pool in pools.values():
            mine = [row for row in rows if row.pool == pool.name]
            coming = sum(row.state in COMING for row in mine)
            rests = any(row.state is RentState.REFUSED and snapshot.at - row.since < REST for row in mine)
            room = pool.most - sum(row.state not in ENDED for row in mine)
            counts.append((pool, coming + (0 if rests else max(0, room))))
        ahead = foresee(max(pool.terms.start_seconds for pool in pools.values()))
        rates = {
            name: service.rate_per_second + max(0.0, ahead.get(name, 0.0) - expected.rate_per_second)
            for name, service in problem.services.items()
            if (expected := snapshot.expected.get(name)) is not None
        }
        pricing = pricing_of(policy_spec(snapshot.declared))
        question, pool_of = pose_renting(problem, counts, rates, pricing)
        return (
            ask_renting(self.solver, question, pool_of) if question.nodes and question.services else RentNeed.nothing()
        )

    def _order(
        self, pool: RentalPool, live: Sequence[RentedNode], need: RentNeed, snapshot: Snapshot, seconds: float
    ) -> list[RentedNode]:
        """Returns the orders of a pool that are made now."""
        mine = [row for row in live if row.pool == pool.name]
        coming = sum(row.state in COMING for row in mine)
        missing = min(need.wanted.get(pool.name, 0) - coming, pool.most - len(mine))
        share = need.saving_per_hour * max(0, missing) / max(1, sum(need.wanted.values()))
        account = self._accounts.get(pool.name, RentAccount()).wait(share, seconds)
        count = max(0, pool.least - len(mine))
        if missing > 0 and account.may_rent(pool.terms, missing, share):
            account, count = RentAccount(), max(count, missing)
        self._accounts[pool.name] = account
        taken = {item.name for item in snapshot.declared if item.kind == "Node"} | {row.node for row in live}
        return [make_order(pool, name, snapshot.at) for name in name_nodes(pool.name, taken, count)]

    def _give_back(
        self, pool: RentalPool, live: Sequence[RentedNode], idle: set[str], now: datetime
    ) -> list[RentedNode]:  # fmt: skip
        """Returns nodes that leave now: they idle, their terms are over, and as many have idled for long enough."""
        mine = [row for row in live if row.pool == pool.name and row.state is not RentState.LEAVING]
        empty = [row for row in mine if row.node in idle]
        known = self._idle.get(pool.name, IdleNodes()).note(len(empty), now.timestamp())
        due = min(known.count_due(pool.terms, now.timestamp()), len(mine) - pool.least)
        over = [row for row in empty if row.paid_at and (now - row.paid_at).total_seconds() >= pool.terms.entry_seconds]
        going = sorted(over, key=lambda row: (row.asked_at, row.node))[: max(0, due)]
        self._idle[pool.name] = known.give_back(len(going))
        return going

    def carry_out(self, epoch: int, read_world: Callable[[], Sequence[DeclaredObject]]) -> None:
        """Looks at every order, and calls the hooks that are due: each call is recorded before it is made.

        A fleet without pools costs one statement, of a new leader, as orders outlive their pool.
        """
        if not self._has_pools and not self._has_orders:
            return
        found = self.database.read(read_orders)
        self._has_orders = bool(found)
        if not self._has_pools and not found:
            return
        declared = read_world()
        pools = read_pools(declared)
        now = self.database.read(clock.moment)
        for row, sight in found:
            step = look(row, sight, now)
            if step.rented is not row and not self._change(epoch, row, step):
                continue
            verb = next_call(step.rented, sight, now)
            pool = pools.get(row.pool)
            if verb is None or (verb == "rent" and pool is None):
                continue
            called = step.rented.note_call(now)
            if not self._change(epoch, step.rented, RentStep(called)):
                continue
            spec = pool.node_spec() if pool is not None else {}
            answer = self.hooks.call(HookOrder(verb, row.hook, row.key, row.pool, row.node, spec))
            self._change(epoch, called, take_answer(called, verb, answer, now), spec)
        if pools:
            self._show(epoch, declared, pools, now)

    def _show(
        self, epoch: int, declared: Sequence[DeclaredObject], pools: Mapping[str, RentalPool], now: datetime
    ) -> None:  # fmt: skip
        rows = [row for row, _ in self.database.read(read_orders)]
        pools = add_reclaims(pools, self.database.read(rented.count_reclaims))
        unordered = find_unordered(declared, rows, now)
        specs = {Key(Kind.POOL, "", pool.name): pool.spec for pool in pools.values()}
        self._statuses.write(self.database, epoch, describe_pools(pools, rows, unordered), specs)

    def _change(
        self, epoch: int, before: RentedNode, step: RentStep, spec: Mapping[str, object] | None = None
    ) -> bool:  # fmt: skip
        """Writes a step with its event; declares a node that was accepted, and deletes one that is gone."""
        after = step.rented
        happened = _events(step)

        def write(connection: Connection) -> bool:
            _must_lead(connection, epoch)
            if not rented.change(connection, before.state, encode(after)):
                return False
            if before.state is RentState.ASKED and after.state is RentState.STARTING and spec:
                declare(connection, PLANNER, [Manifest(Kind.NODE, "", after.node, dict(spec))])
            if after.state is RentState.LEAVING and before.state is not RentState.LEAVING:
                _drain(connection, after.node)
            if after.state is RentState.GONE and before.state is not RentState.GONE:
                _forget(connection, after.node)
            events.record(connection, happened)
            return True

        is_written = self.database.write(write)
        if is_written:
            metrics.count_events(happened)
        return is_written


def read_pools(declared: Sequence[DeclaredObject]) -> dict[str, RentalPool]:
    """Returns the declared pools by name, with the prices of their GpuTypes."""
    specs = {item.name: item.spec for item in declared if item.kind == "Pool"}
    types = {item.name: item.spec for item in declared if item.kind == "GpuType"} if specs else {}
    return {name: make_pool(name, spec, types[str(spec["gpuType"])]) for name, spec in sorted(specs.items())}


def add_reclaims(
    pools: Mapping[str, RentalPool], counted: Mapping[str, tuple[int, float]]
) -> dict[str, RentalPool]:  # fmt: skip
    """Returns the pools with the notices that their nodes got."""
    known = {name: ReclaimHistory(*found) for name, found in counted.items()}
    return {name: replace(pool, reclaims=known.get(name, ReclaimHistory())) for name, pool in pools.items()}


def read_orders(connection: Connection) -> list[tuple[RentedNode, NodeSight]]:
    """Returns every order that still matters, and what is seen of its node."""
    rows = rented.read(connection, SILENT_SECONDS)
    leaving = [row.node for row in rows if row.state == RentState.LEAVING]
    reporting = {row.node for row in rows if row.reports}
    # What a silent node last said to run there proves nothing; what is assigned to it has yet to move.
    busy = {
        found.node
        for found in (occupants.find_occupants(connection, leaving) if leaving else ())
        if found.assigned or found.node in reporting
    }
    names = [known.name for known in fields(RentedNode)]
    found = []
    for row in rows:
        values = {name: getattr(row, name) for name in names}
        node = RentedNode(**{**values, "state": RentState(row.state)})
        found.append((node, NodeSight(row.reports, row.node in busy, row.reclaimed)))
    return found


def make_order(pool: RentalPool, node: str, now: datetime) -> RentedNode:
    """Returns the order of a node; its key names the node and the moment, so that no other order ever has it."""
    key = f"{node}-{now:%Y%m%dT%H%M%S}"
    return RentedNode(
        key, node, pool.name, str(pool.spec["hook"]), RentState.ASKED, now, now, pool.terms.start_seconds,
        pool.terms.minimum_seconds,
    )  # fmt: skip


def name_nodes(pool: str, taken: set[str], count: int) -> list[str]:
    """Returns so many names for nodes of a pool, the lowest numbers that are free."""
    names: list[str] = []
    number = 1
    while len(names) < count:
        if (name := f"{pool}-{number}") not in taken:
            names.append(name)
        number += 1
    return names


def encode(row: RentedNode) -> dict[str, object]:
    """Returns the order as the columns of its row."""
    return {known.name: getattr(row, known.name) for known in fields(RentedNode)} | {"state": str(row.state)}


def _record(
    connection: Connection, epoch: int, orders: Sequence[RentedNode], leaving: Sequence[RentedNode], idle: set[str],
    seconds: float,
) -> None:  # fmt: skip
    _must_lead(connection, epoch)
    now = clock.now(connection)
    rented.order(connection, map(encode, orders))
    rented.add_idle(connection, idle, seconds)
    happened: list[NewEvent] = []
    for row in leaving:
        after = leave(row, now, "nothing needs it")
        if rented.change(connection, row.state, encode(after)):
            _drain(connection, row.node)
            happened += _events(RentStep(after, Reason.RENT_LEAVING))
    events.record(connection, happened)


def _must_lead(connection: Connection, epoch: int) -> None:
    if not lease.is_newest(connection, epoch):
        raise Deposed(f"epoch {epoch} is over")


def _drain(connection: Connection, node: str) -> None:
    """Keeps plans off the node; what runs there moves, make before break."""
    cordons.put(connection, node, cordons.ALL_GPUS, "drain", None, DRAINED_BY, "it is given back to its pool")


def _forget(connection: Connection, node: str) -> None:
    cordons.lift(connection, node, cordons.ALL_GPUS)
    key = Key(Kind.NODE, "", node)
    if objects.get(connection, key) is not None:
        delete(connection, PLANNER, key, force=True)


def _events(step: RentStep) -> list[NewEvent]:
    if step.reason is None:
        return []
    row = step.rented
    message = f"node {row.node}: {row.message}" if row.message else f"node {row.node}: {step.reason.sentence}"
    return [event_of(step.reason, message, kind="Pool", name=row.pool, about=row.node)]
