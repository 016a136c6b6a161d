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
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import SILENT_SECONDS, DeclaredObject, Snapshot
from app.control.domain.times import cycle_seconds
from app.control.measure import metrics
from app.control.observe.silence import LONG_AGO, Silence
from app.control.rent.calls import HookCaller, HookOrder
from app.control.rent.question import RentalPool, make_pool
from app.control.rent.rule import Foresee, RentDecision, RentMoment, RentRule
from app.control.rent.shown import describe_pools, find_unordered
from app.control.rent.states import (
    NodeSight,
    RentedNode,
    RentState,
    RentStep,
    cancel,
    leave,
    look,
    next_call,
    take_answer,
)
from app.control.tell.statuses import SkipVersions, StatusWriter
from app.manifests.model import Key, Kind, Manifest
from app.store.database import clock, lease
from app.store.database.database import Database
from app.store.fleet import cordons, rent_accounts, rented
from app.store.world import events, objects
from app.world import occupants
from app.world.declare import declare, delete
from app.world.write import Actor
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.renting import ReclaimHistory

PLANNER = Actor(Principal("planner", Scope.ADMIN), "planner")
PAUSE = timedelta(seconds=60)  # between two questions to the solver
LONGEST_PASS = timedelta(minutes=1)  # of hooks that are called one after another: then returns and statuses have a turn
LONGEST_OUTAGE = timedelta(hours=1)  # a fleet in which no node has reported for longer has none
LONGEST_GAP = timedelta(minutes=30)  # after a longer one, as outside mode auto, accounts begin again
DRAINED_BY = "planner"
LONGEST_BEGIN = 57  # of a name of 63 characters that ends with a number

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Renter:
    """The orders, which stay in the database, and the rule that decides on them."""

    database: Database
    solver: PlanSolver
    hooks: HookCaller
    skip: SkipVersions
    make_rule: Callable[[], RentRule]
    _rule: RentRule = field(init=False)
    _asked_at: datetime | None = None
    _earlier: Mapping[str, float] = field(default_factory=dict)  # what waiting had cost under the last leader
    _is_new: bool = True  # it has not led in mode auto yet
    _waits: Mapping[str, str] = field(default_factory=dict)  # what each pool waits for, of the last decision
    _lost_since: dict[str, datetime] = field(default_factory=dict)  # by node
    _has_pools: bool = False  # as the last cycle has seen
    _has_orders: bool = True  # until a reading says that there are none
    _is_auto: bool | None = None  # as the last cycle has seen; before that no hook is called to rent
    _statuses: StatusWriter = field(init=False)

    def __post_init__(self) -> None:
        self._rule, self._statuses = self.make_rule(), StatusWriter(self.skip)

    def decide(self, epoch: int, snapshot: Snapshot, problem: Problem, plan: Plan, foresee: Foresee) -> None:
        """Records what is rented and given back from now on; only in mode auto."""
        pools = read_pools(snapshot.declared)
        self._has_pools = bool(pools)
        is_auto = self._is_auto = read_modes(snapshot.declared, snapshot.is_held).fleet == "auto"
        now, last = snapshot.at, self._asked_at
        if not is_auto:
            self._waits = dict.fromkeys(pools, "nothing is rented outside mode auto")
            self._asked_at, self._is_new = None, False  # this time is neither waited nor idled
        if not pools or not is_auto or (last is not None and timedelta() <= now - last < PAUSE):
            return
        self._asked_at, self._has_orders = now, True
        longest = max(LONGEST_GAP, timedelta(seconds=2 * cycle_seconds(snapshot.declared)))
        if last is None or not timedelta() <= now - last <= longest:
            self._rule, self._earlier = self.make_rule(), self._read_earlier(now - longest)
            return  # nodes that stand there may have yet to report
        pools = add_reclaims(pools, self.database.read(rented.count_reclaims))
        rows = self.database.read(read_rows)
        seconds = (now - last).total_seconds()
        lost = self._find_lost(rows, snapshot)
        known = [leave(row, now) if row in lost else row for row in rows]
        moment = RentMoment(snapshot, problem, plan, pools, known, foresee, seconds, self._earlier)
        # Without an answer of the solver nothing changes but what is lost.
        decision = self._rule.decide(moment, self.solver) or RentDecision({}, (), self._waits)
        self._waits = decision.waits
        # A machine of an earlier order may still have that name, whatever its hook answered.
        taken = {item.name for item in snapshot.declared if item.kind == "Node"} | {row.node for row in rows}
        orders = [
            make_order(pools[pool], name, now)
            for pool, count in decision.orders.items()
            for name in name_nodes(pool, taken, count)
        ]
        self.database.write(lambda connection: _record(connection, epoch, orders, decision, moment, lost))

    def _read_earlier(self, since: datetime) -> Mapping[str, float]:
        """Returns the accounts of the last leader: else a fleet whose leader changes often would never rent to save."""
        was_new, self._is_new = self._is_new, False
        return self.database.read(lambda connection: rent_accounts.get(connection, since)) if was_new else {}

    def _find_lost(self, rows: Sequence[RentedNode], snapshot: Snapshot) -> list[RentedNode]:
        """Returns joined nodes that have been lost for as long as a late start is waited for, or that are undeclared.

        They would count as rented for ever, and no other would come.
        """
        joined = [row for row in rows if row.state is RentState.JOINED]
        silent = {row.node for row in joined if row.node in snapshot.nodes and snapshot.nodes[row.node].state == "lost"}
        self._lost_since = {node: self._lost_since.get(node, snapshot.at) for node in silent}
        declared = {item.name for item in snapshot.declared if item.kind == "Node"}
        return [
            row
            for row in joined
            if (row.node not in declared and snapshot.at - row.since > PAUSE)
            or (row.node in silent and snapshot.at - self._lost_since[row.node] > row.late_after)
        ]

    def carry_out(self, epoch: int, read_world: Callable[[], Sequence[DeclaredObject]], silence: Silence) -> None:
        """Looks at every order, and calls the hooks that are due: each call is recorded before it is made.

        `silence` is measured elsewhere, so that a hook that hangs does not look like an outage. A fleet without pools
        costs one statement, of a new leader, as orders outlive their pool.
        """
        if not self._has_pools and not self._has_orders:
            return
        found = self.database.read(lambda connection: read_orders(connection, silence))
        self._has_orders = bool(found)
        if not self._has_pools and not found:
            return
        declared = read_world()
        pools = read_pools(declared)
        began = self.database.read(clock.moment)
        unwanted = find_unwanted([row for row, _ in found], pools, is_stopped=self._is_auto is False)
        for row, sight in found:
            try:
                self._carry_out_one(epoch, row, sight, pools.get(row.pool), unwanted.get(row.key, ""), began)
            except Deposed:
                raise
            except Exception:  # the other orders must not wait for this one
                log.exception("order_failed", extra={"key": row.key})
        if pools:
            self._show(epoch, declared, pools, began)

    def _carry_out_one(
        self, epoch: int, row: RentedNode, sight: NodeSight, pool: RentalPool | None, unwanted: str, began: datetime
    ) -> None:
        now, spec = self.database.read(clock.moment), pool.node_spec() if pool is not None else {}
        step = look(row, sight, now)
        if step.rented.state is RentState.ASKED and unwanted:
            step = RentStep(cancel(row, now, unwanted), Reason.RENT_CANCELLED)
        if step.rented is not row and not self._change(epoch, row, step, spec):
            return
        verb = next_call(step.rented, sight, now)
        may_rent = pool is not None and self._is_auto
        if verb is None or (verb == "rent" and not may_rent) or now - began > LONGEST_PASS:
            return
        called = step.rented.note_call(now)
        if not self._change(epoch, step.rented, RentStep(called)):
            return
        answer = self.hooks.call(HookOrder(verb, row.hook, row.key, row.pool, row.node, spec))
        self._change(epoch, called, take_answer(called, verb, answer, self.database.read(clock.moment)), spec)

    def _show(
        self, epoch: int, declared: Sequence[DeclaredObject], pools: Mapping[str, RentalPool], now: datetime
    ) -> None:  # fmt: skip
        rows = self.database.read(read_rows)
        pools = add_reclaims(pools, self.database.read(rented.count_reclaims))
        unordered = find_unordered(declared, rows, now)
        specs = {Key(Kind.POOL, "", pool.name): pool.spec for pool in pools.values()}
        self._statuses.write(self.database, epoch, describe_pools(pools, rows, unordered, self._waits), specs)

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
            # A machine that joins before its hook has answered declares itself, and knows nothing of its pool.
            if before.state is RentState.ASKED and after.state in (RentState.STARTING, RentState.JOINED) and spec:
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


def read_rows(connection: Connection) -> list[RentedNode]:
    """Returns every order that still matters."""
    return [_decode(row) for row in rented.read(connection, SILENT_SECONDS)]


def read_orders(connection: Connection, silence: Silence) -> list[tuple[RentedNode, NodeSight]]:
    """Returns every order that still matters, those first whose hooks were not called for longest, and what is seen.

    While no node reports, the fault is on this side: then nothing is known of a node that is silent.
    """
    now, rows = clock.moment(connection), rented.read(connection, SILENT_SECONDS)
    rows = sorted(rows, key=lambda row: row.called_at or row.asked_at)
    newest = max((row.newest_at for row in rows if row.newest_at), default=None)
    is_short = newest is not None and now - newest < LONGEST_OUTAGE
    still = timedelta(seconds=SILENT_SECONDS)
    is_outage = newest is not None and now - newest > still
    unknown = {
        row.node
        for row in rows
        if is_short and not row.reports and (is_outage or now - max(row.heard_at or LONG_AGO, silence.since) <= still)
    }
    leaving = [row.node for row in rows if row.state == RentState.LEAVING]
    running = unknown | {row.node for row in rows if row.reports}
    # What a silent node last said to run there proves nothing; what is assigned to it has yet to move.
    busy = {
        found.node
        for found in (occupants.find_occupants(connection, leaving) if leaving else ())
        if found.assigned or found.node in running
    }
    return [
        (_decode(row), NodeSight(row.reports, row.node in unknown, row.node in busy, row.reclaimed)) for row in rows
    ]


def _decode(row: rented.RentedRow) -> RentedNode:
    values = {known.name: getattr(row, known.name) for known in fields(RentedNode)}
    return RentedNode(**{**values, "state": RentState(row.state)})


def find_unwanted(
    rows: Sequence[RentedNode], pools: Mapping[str, RentalPool], *, is_stopped: bool
) -> dict[str, str]:  # fmt: skip
    """Returns the orders that no hook has accepted and that are wanted no longer, by key, with the reason."""
    asked = [row for row in rows if row.state is RentState.ASKED]
    if is_stopped:
        return {row.key: "nothing is rented outside mode auto" for row in asked}
    found: dict[str, str] = {}
    for pool in pools.values():
        live = sum(row.pool == pool.name and row.counts for row in rows)
        mine = sorted((row for row in asked if row.pool == pool.name), key=lambda row: (row.asked_at, row.node))
        over = mine[max(0, len(mine) - max(0, live - pool.most)) :]
        found |= {row.key: f"the pool has at most {pool.most} nodes now" for row in over}
    return found


def make_order(pool: RentalPool, node: str, now: datetime) -> RentedNode:
    """Returns the order of a node; its key names the node and the moment, so that no other order ever has it."""
    key = f"{node}-{now:%Y%m%dT%H%M%S}"
    return RentedNode(
        key, node, pool.name, str(pool.spec["hook"]), RentState.ASKED, now, now, pool.terms.start_seconds,
        pool.terms.minimum_seconds,
    )  # fmt: skip


def name_nodes(pool: str, taken: set[str], count: int) -> list[str]:
    """Returns so many names for nodes of a pool, the lowest numbers that are free; a name is a DNS label."""
    names, begins = list[str](), pool[:LONGEST_BEGIN].rstrip("-")
    number = 1
    while len(names) < count:
        if (name := f"{begins}-{number}") not in taken:
            names.append(name)
        number += 1
    return names


def encode(row: RentedNode) -> dict[str, object]:
    """Returns the order as the columns of its row."""
    return {known.name: getattr(row, known.name) for known in fields(RentedNode)} | {"state": str(row.state)}


def _record(
    connection: Connection, epoch: int, orders: Sequence[RentedNode], decision: RentDecision, moment: RentMoment,
    lost: Sequence[RentedNode],
) -> None:  # fmt: skip
    _must_lead(connection, epoch)
    now = clock.now(connection)
    rented.order(connection, map(encode, orders))
    rented.add_idle(connection, moment.idle, moment.seconds)
    if decision.waited is not None:
        rent_accounts.put(connection, decision.waited)
    happened: list[NewEvent] = []
    declared = {item.name for item in moment.snapshot.declared if item.kind == "Node"}
    leaving = [(row, "nothing needs it", Reason.RENT_LEAVING) for row in decision.leaving]
    leaving += [(row, "it is lost, or its Node was deleted", Reason.RENT_LOST) for row in lost]
    for row, why, reason in leaving:
        after = leave(row, now, why)
        if rented.change(connection, row.state, encode(after)):
            if row.node in declared:
                _drain(connection, row.node)
            happened += _events(RentStep(after, reason))
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
