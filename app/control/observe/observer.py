"""Reads snapshots, assignments and the fleet's status from the database, in a consistent read each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import msgspec
from sqlalchemy import Connection

from agents.contract.assignments import Assignment
from agents.contract.reports import Copy
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus, NodeDesired, have_same_instances
from app.control.domain.failures import group_failures, read_failures, rest_after
from app.control.domain.leading import FleetView
from app.control.domain.policy import planner_policy
from app.control.domain.snapshot import (
    SILENT_SECONDS,
    Correction,
    DeclaredObject,
    ExpectedLoad,
    LatencyFactor,
    NodeStatus,
    Snapshot,
    TenantSpending,
)
from app.control.jobs import rows as job_rows
from app.control.observe.nodes import Patience, is_out, node_statuses, reclaim_times
from app.control.observe.silence import Silence
from app.control.observe.world import WorldCache
from app.manifests.prices import NANO
from app.nodes.detail import NodeDetail
from app.store.fleet import planner_reads
from app.store.fleet.load_news import NO_NEWS, NewsQuestion
from app.store.fleet.planner_reads import CycleReading, FleetReading, StepReading
from app.store.money import spending
from app.store.plans import pieces
from app.store.plans.plans import PlanInForce
from solvers.planning.plan import Unserved

REFRESH_INTERVAL = timedelta(minutes=5)  # often enough for monthly budgets


@dataclass(slots=True)
class SpendingCache:
    """Asks the database at intervals, and remembers the answer."""

    _at: datetime | None = None
    _spent: Mapping[str, float] = field(default_factory=dict)

    def spent(self, connection: Connection, now: datetime) -> Mapping[str, float]:
        """Returns the spending by tenant, rounded to cents."""
        if self._at is None or not timedelta() <= now - self._at < REFRESH_INTERVAL or now.month != self._at.month:
            self._spent = {tenant: round(nano / NANO, 2) for tenant, nano in spending.this_month(connection).items()}
            self._at = now
        return self._spent


STAGES = ("gone", "ending", "draining", "starting", "verifying", "warming", "routing", "ready")  # the best is last
RISING = ("starting", "verifying", "warming", "routing")  # stages of a copy that is to serve
UNFINISHED = ("rolling", "paused")  # states of a plan whose assignments may not be made yet
Latency: TypeAlias = tuple[LatencyFactor, ...]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ExpectLoads = Callable[["ForecastInput"], Mapping[str, ExpectedLoad]]


@dataclass(frozen=True, slots=True)
class _PlanBody:
    """The part of a recorded plan that names the unserved load."""

    unserved: tuple[Unserved, ...] = ()


_desired = msgspec.json.Decoder(dict[str, NodeDesired])
_detail = msgspec.json.Decoder(NodeDetail)
_unserved = msgspec.json.Decoder(_PlanBody)


@dataclass(frozen=True, slots=True)
class PlanRates:
    """The desired state of the plan in force and, by service, the rate that it serves and what it leaves unserved."""

    in_force: Desired
    served: Mapping[str, float]
    unserved: Mapping[str, float]

    @property
    def planned(self) -> dict[str, float]:
        """The rate that it was made for."""
        names = {*self.served, *self.unserved}
        return {name: self.served.get(name, 0.0) + self.unserved.get(name, 0.0) for name in names}

    @property
    def short(self) -> dict[str, float]:
        """What it serves of those of which it leaves something unserved."""
        return {name: self.served.get(name, 0.0) for name, rate in self.unserved.items() if rate > 0.0}


NO_PLAN = PlanRates({}, {}, {})


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """The input of a forecast: the time, the declared objects, the nodes and the plan in force."""

    at: datetime
    declared: tuple[DeclaredObject, ...]
    rates: PlanRates
    nodes: Mapping[str, NodeStatus] = field(default_factory=dict)
    is_held: bool = False  # plans wait for a person since a rollback

    @property
    def in_force(self) -> Desired:
        return self.rates.in_force


@dataclass(slots=True)
class Observer:
    """Reads, and caches what has not changed. After a failed read it has to be replaced by a new observer."""

    silence: Silence = field(default_factory=Silence)
    _spending: SpendingCache = field(default_factory=SpendingCache)
    _world: WorldCache = field(default_factory=WorldCache)
    _assigned: dict[str, NodeDesired] = field(default_factory=dict)
    _assigned_version: int = 0
    _generations: dict[str, int] = field(default_factory=dict)
    _lost_after: float = field(default_factory=lambda: planner_policy(()).lost_after_seconds)
    _details: dict[str, NodeDetail] = field(default_factory=dict)
    _details_at: datetime = EPOCH
    _in_force: tuple[tuple[bytes, bytes], PlanRates] = ((b"", b""), NO_PLAN)

    def snapshot(self, connection: Connection, epoch: int, expecting: ExpectLoads) -> Snapshot:
        """Returns everything that a decision is made from, as of one moment."""
        reading = planner_reads.read_cycle(connection, self._assigned_version)
        at, in_force = reading.now, reading.plan
        failures = group_failures(read_failures(in_force.progress), at) if in_force else ()
        declared = self._take(connection, reading)
        rates = self._target(connection, in_force)
        target = rates.in_force
        self._lost_after = planner_policy(declared).lost_after_seconds
        nodes = self._nodes(reading)
        return Snapshot(
            at=at,
            epoch=epoch,
            declared=declared,
            nodes=nodes,
            in_force=target,
            assigned=self._find_unfinished(in_force, target),
            expected=expecting(ForecastInput(at, declared, rates, nodes, reading.is_held)),
            corrections={
                f"{model}/{variant}/{gpu_type}": Correction(msgspec.convert(latency, Latency), *factors)
                for model, variant, gpu_type, latency, *factors in reading.corrections
            },
            jobs={name: state.facts for name, state in job_rows.states_of(reading.jobs).items()},
            tenants={tenant: TenantSpending(amount) for tenant, amount in self._spending.spent(connection, at).items()},
            resting={failed.owner: rest for failed in failures if (rest := rest_after(failed)) and at < rest.until},
            failed_places={failed.owner: failed.avoided for failed in failures if failed.avoided},
            suspects=tuple(in_force.progress.get("suspects", ())) if in_force else (),
            blocked=tuple(in_force.rollout.get("freed", ())) if in_force else (),
            is_rolling=in_force is not None and in_force.state == "rolling",
            is_paused=in_force is not None and in_force.state == "paused",
            is_stopped=in_force is not None and in_force.state == "stopped",
            is_held=reading.is_held,
            target=in_force.generation if in_force else 0,
            is_unwanted=in_force is not None and in_force.is_unwanted,
            proposal=reading.proposal,
        )

    def view(self, connection: Connection, asked: NewsQuestion = NO_NEWS) -> FleetView:
        """Returns what a step of the rollout follows from, as of one moment, and the news of loads till then."""
        reading = planner_reads.read_step(connection, self._assigned_version, self._details_at, asked)
        declared = self._take(connection, reading)
        target = self._target(connection, reading.plan).in_force
        status = self._fleet_status(reading)
        return FleetView(
            reading.now, declared, reading.plan, target, dict(self._assigned), status, reading.jobs, reading.epoch,
            reading.news, reading.is_held,
        )  # fmt: skip

    def _find_unfinished(self, plan: PlanInForce | None, target: Desired) -> Desired | None:
        """Returns the assignments of a plan that is not fully rolled out; None if they are what it wants."""
        if plan is None or plan.state not in UNFINISHED:
            return None
        assigned = {node: wanted.sharing(target.get(node)) for node, wanted in self._assigned.items()}
        return None if have_same_instances(assigned, target) else assigned

    def _nodes(self, reading: CycleReading) -> dict[str, NodeStatus]:
        rows, at = reading.nodes, reading.now
        last_reports = {row.name: row.received_at for row in rows if row.received_at}
        silent = self.silence.seconds(last_reports, at)
        unheard = self.silence.unheard(last_reports, at)
        patience = Patience(self._lost_after, reclaim_times(reading.cordons), at, _held_nodes(reading.plan))
        return node_statuses(rows, silent, reading.cordons, patience, unheard)

    def world(self, connection: Connection) -> tuple[DeclaredObject, ...]:
        """Returns every declared object; the same objects, as long as none of them changes."""
        return self._world.read(connection)

    def skip_statuses(self, before: int, after: int) -> None:
        """Does not read the world again for versions in which this planner wrote statuses alone."""
        self._world.skip(before, after)

    def _take(self, connection: Connection, reading: FleetReading) -> tuple[DeclaredObject, ...]:
        """Takes the new assignments; returns every declared object."""
        for node, version, body in reading.assignments:
            assignment = msgspec.json.decode(body, type=Assignment)
            self._assigned[node] = NodeDesired(
                assignment.instances,
                assignment.gpus,
                assignment.handover,
                assignment.handover_seconds,
                int(assignment.clients_per_gpu),
                int(assignment.same_model_per_gpu),
                assignment.swapped,
            )
            self._generations[node] = assignment.generation
            self._assigned_version = max(self._assigned_version, version)
        self._world.read_at(connection, reading.object_version, reading.object_floor)
        return self._world.learn(reading.jobs)

    def _fleet_status(self, reading: StepReading) -> FleetStatus:
        """Returns the last reported status of the fleet. Only the node with its assignment may report an instance."""
        for node, at, detail in reading.details:
            self._details[node] = _detail.decode(detail)
            self._details_at = max(self._details_at, at)
        received, now = reading.received, reading.now
        silent_seconds = self.silence.seconds({node: at for node, _, at in received}, now)
        known = silent_seconds.keys()
        instances: dict[str, InstanceStatus] = {}
        generations = {node: generation for node, generation, _ in received}
        assigned_node = {instance.id: node for node, wanted in self._assigned.items() for instance in wanted.instances}
        for node, reported in self._details.items():
            if node in known:
                statuses = instance_statuses(reported, generations[node])
                instances |= {id_: status for id_, status in statuses.items() if assigned_node.get(id_, node) == node}
        # The last report of a silent node says nothing of now, even if the silence is the control plane's own.
        silent = frozenset(node for node, _, at in received if (now - at).total_seconds() > SILENT_SECONDS)
        reclaimed_at = reclaim_times(reading.cordons)
        patience = Patience(self._lost_after, reclaimed_at, now, _held_nodes(reading.plan))
        lost = frozenset(node for node, seconds in silent_seconds.items() if seconds > patience.seconds(node))
        ailing = frozenset(
            (node, gpu.index)
            for node in known & self._details.keys()
            for gpu in self._details[node].gpus
            if is_out(gpu)
        )
        reported_at = {node: at.timestamp() for node, _, at in received}
        return FleetStatus(
            instances, generations, silent, ailing, lost, dict(self._generations), reported_at,
            self.silence.heard_since.timestamp(), self.silence.is_outage(now),
            {node: deadline.timestamp() for node, deadline in reclaimed_at.items()},
        )  # fmt: skip

    def _target(self, connection: Connection, plan: PlanInForce | None) -> PlanRates:
        """Returns the desired state of the plan in force, and the rates that it was made for."""
        if plan is None:
            return NO_PLAN
        hashes, rates = self._in_force
        if hashes != (plan.desired, plan.body):
            found = pieces.get(connection, [plan.desired, plan.body])
            desired = _desired.decode(found[plan.desired])
            unserved = {
                unserved.service: unserved.rate_per_second for unserved in _unserved.decode(found[plan.body]).unserved
            }
            served: dict[str, float] = {}
            for wanted in desired.values():
                for instance in wanted.instances:
                    if instance.service:
                        served[instance.owner] = served.get(instance.owner, 0.0) + instance.rate_per_second
            rates = PlanRates(desired, served, unserved)
            self._in_force = ((plan.desired, plan.body), rates)
        return rates


def _held_nodes(plan: PlanInForce | None) -> Sequence[str]:
    """Returns the silent nodes that do not count as lost yet, as many went silent at once."""
    return tuple(plan.progress.get("held_nodes", ())) if plan else ()


def instance_statuses(detail: NodeDetail, generation: int) -> dict[str, InstanceStatus]:
    """Returns, by instance, the status that a node reports of its copies and of what it holds back."""
    held = {held_back.instance: held_back for held_back in detail.held_back}
    copies: dict[str, list[Copy]] = {}
    for copy in detail.copies:
        copies.setdefault(copy.instance, []).append(copy)
    found = {}
    for instance in {*held, *copies}:
        mine = sorted(copies.get(instance, ()), key=_rank)
        best = mine[-1] if mine else None
        why = held.get(instance)
        failed = next((copy for copy in mine if copy.reason), None)
        found[instance] = InstanceStatus(
            stage=best.stage if best else "",
            routed=bool(best and best.routed),
            reason=why.reason if why else (failed.reason if failed else ""),
            message=why.message if why else (failed.message if failed else ""),
            generation=generation,
            sm_percent=best.sm_percent if best else 0.0,
            memory_gib=best.memory_gib if best else 0.0,
            copies=len(mine),
            rising=next((copy.stage for copy in reversed(mine) if copy.stage in RISING), ""),
        )
    return found


def _rank(copy: Copy) -> int:
    return STAGES.index(copy.stage) if copy.stage in STAGES else 0
