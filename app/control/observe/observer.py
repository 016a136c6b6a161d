"""One consistent read of everything that decides a plan, and of what is told and seen while it is rolled out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import Connection

from agents.contract import Assignment, Copy
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus, NodeDesired
from app.control.domain.snapshot import Correction, DeclaredObject, ExpectedLoad, NodeStatus, Snapshot, TenantSpending
from app.control.jobs import rows as kept
from app.control.observe.nodes import is_out, node_statuses
from app.control.observe.silence import SILENT_SECONDS, Silence
from app.control.observe.spending import SpendingCache
from app.control.observe.world import WorldCache
from app.manifests.fleet import PolicySpec
from app.nodes.detail import NodeDetail
from app.store.fleet import cordons, observed
from app.store.plans import pieces, plans
from app.store.plans.plans import PlanInForce
from solvers.planning.plan import Unserved

STAGES = ("gone", "ending", "draining", "starting", "verifying", "warming", "routing", "ready")  # the best is last
FIRST_REST, LONGEST_REST = timedelta(seconds=30), timedelta(minutes=2)
REMEMBERED_HOURS = 2.0
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

ExpectLoads = Callable[["ForecastInput"], Mapping[str, ExpectedLoad]]


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """Of a recorded plan, what nobody carries."""

    unserved: tuple[Unserved, ...] = ()


_desired = msgspec.json.Decoder(dict[str, NodeDesired])
_unserved = msgspec.json.Decoder(_LeftOut)


@dataclass(frozen=True, slots=True)
class ForecastInput:
    """What a forecast needs: the moment, what is declared, and what is planned for now."""

    at: datetime
    declared: tuple[DeclaredObject, ...]
    planned: Mapping[str, float]  # by service: the rate that the plan in force was made for


@dataclass(slots=True)
class Observer:
    """Reads, and keeps what has not changed since. A failed read begins anew, with a new one."""

    silence: Silence = field(default_factory=Silence)
    _spending: SpendingCache = field(default_factory=SpendingCache)
    _world: WorldCache = field(default_factory=WorldCache)
    _told: dict[str, NodeDesired] = field(default_factory=dict)
    _told_version: int = 0
    _asked: dict[str, int] = field(default_factory=dict)
    _lost_after: float = PolicySpec.model_fields["lost_after_seconds"].default
    _details: dict[str, NodeDetail] = field(default_factory=dict)
    _details_at: datetime = EPOCH
    _in_force: tuple[tuple[bytes, bytes], Desired, Mapping[str, float]] = ((b"", b""), {}, {})

    def snapshot(self, connection: Connection, epoch: int, expecting: ExpectLoads) -> Snapshot:
        """All that a decision is made from, as of one moment."""
        at = observed.moment(connection)
        declared = self.world(connection)
        in_force = plans.in_force(connection)
        target, planned = self.wanted(connection, in_force)
        policy = next((one.spec for one in declared if one.kind == "Policy"), {})
        lost_after: Any = policy.get("lostAfterSeconds", PolicySpec.model_fields["lost_after_seconds"].default)
        self._lost_after = float(lost_after)
        return Snapshot(
            at=at,
            epoch=epoch,
            declared=declared,
            nodes=self._nodes(connection, at),
            in_force=target,
            expected=expecting(ForecastInput(at, declared, planned)),
            corrections={
                f"{model}/{variant}/{gpu_type}": Correction(*factors)
                for model, variant, gpu_type, *factors in observed.corrections(connection)
            },
            jobs={name: state.facts for name, state in kept.read(connection).items()},
            tenants={tenant: TenantSpending(amount) for tenant, amount in self._spending.spent(connection).items()},
            resting={
                owner: last_at + retry_delay(times)
                for owner, times, last_at in plans.failed(connection, REMEMBERED_HOURS)
                if at < last_at + retry_delay(times)
            },
            moved=plans.moved(connection),
            is_rolling=in_force is not None and in_force.state == "rolling",
            rolled_back_at=in_force.at if in_force and in_force.lane == "rollback" else None,
            target=in_force.generation if in_force else 0,
        )

    def _nodes(self, connection: Connection, at: datetime) -> dict[str, NodeStatus]:
        rows = observed.nodes(connection)
        silent = self.silence.seconds({row.name: row.received_at for row in rows if row.received_at}, at)
        return node_statuses(rows, silent, cordons.listed(connection), self._lost_after)

    def world(self, connection: Connection) -> tuple[DeclaredObject, ...]:
        """Every declared object; the same ones, while none of them is declared otherwise."""
        return self._world.read(connection)

    def told(self, connection: Connection) -> Desired:
        """What every node was told last."""
        for node, version, body in observed.told(connection, self._told_version):
            assignment = msgspec.json.decode(body, type=Assignment)
            self._told[node] = content_of(assignment)
            self._asked[node] = assignment.generation
            self._told_version = max(self._told_version, version)
        return dict(self._told)

    def observed(self, connection: Connection) -> FleetStatus:
        """What nodes last said of what they run. Of what one was told, no other one is heard."""
        for node, at, detail in observed.details(connection, self._details_at):
            self._details[node] = msgspec.convert(detail, NodeDetail)
            self._details_at = max(self._details_at, at)
        heard = observed.generations(connection)
        silent_seconds = self.silence.seconds({node: at for node, _, at in heard}, observed.moment(connection))
        known = silent_seconds.keys()
        instances: dict[str, InstanceStatus] = {}
        generations = {node: generation for node, generation, _ in heard}
        teller = {one.id: node for node, wanted in self._told.items() for one in wanted.instances}
        for node, said in self._details.items():
            if node in known:
                seen = instance_statuses(said, generations[node])
                instances |= {id_: one for id_, one in seen.items() if teller.get(id_, node) == node}
        silent = frozenset(node for node, seconds in silent_seconds.items() if seconds > SILENT_SECONDS)
        lost = frozenset(node for node, seconds in silent_seconds.items() if seconds > self._lost_after)
        ailing = frozenset(
            (node, gpu.index)
            for node in known & self._details.keys()
            for gpu in self._details[node].gpus
            if is_out(gpu)
        )
        return FleetStatus(instances, generations, silent, ailing, lost, dict(self._asked))

    def wanted(self, connection: Connection, plan: PlanInForce | None) -> tuple[Desired, Mapping[str, float]]:
        """What the plan in force wants, and for which rates it was made."""
        if plan is None:
            return {}, {}
        hashes, desired, planned = self._in_force
        if hashes != (plan.desired, plan.body):
            found = pieces.get(connection, [plan.desired, plan.body])
            desired = _desired.decode(found[plan.desired])
            planned = {one.service: one.rate_per_second for one in _unserved.decode(found[plan.body]).unserved}
            for wanted in desired.values():
                for one in wanted.instances:
                    if one.service:
                        name = one.owner
                        planned[name] = planned.get(name, 0.0) + one.rate_per_second
            self._in_force = ((plan.desired, plan.body), desired, planned)
        return desired, planned


def retry_delay(failures: int) -> timedelta:
    """How long nothing is tried of what failed so often of late."""
    return min(FIRST_REST * int(2 ** min(failures - 1, 10)), LONGEST_REST)


def content_of(assignment: Assignment) -> NodeDesired:
    """An assignment's content, without its numbers."""
    return NodeDesired(
        assignment.instances,
        assignment.gpus,
        assignment.handover,
        assignment.handover_seconds,
        int(assignment.clients_per_gpu),
        int(assignment.same_model_per_gpu),
    )


def instance_statuses(said: NodeDetail, generation: int) -> dict[str, InstanceStatus]:
    """By instance, what a node says of its copies and of what it holds back."""
    held = {one.instance: one for one in said.held_back}
    copies: dict[str, list[Copy]] = {}
    for copy in said.copies:
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
        )
    return found


def _rank(copy: Copy) -> int:
    return STAGES.index(copy.stage) if copy.stage in STAGES else 0
