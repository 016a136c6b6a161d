"""After a cycle: what follows from it for gateways, objects, events, metrics and whoever pays. It decides no plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from math import inf
from typing import Any

import msgspec
from sqlalchemy import Connection

from app.control.decide.cordons import Drain, progress
from app.control.domain.decision import HeldBackChange
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.mode import mode_of
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.formulate.tenants import (
    budget_accounts,
    gpu_types,
    gpus_per_rate,
    terms_of,
    used_by_service,
    used_by_tenant,
)
from app.control.jobs import JobState, declared_work, kept
from app.control.jobs import job_status as said_of_job
from app.control.measure import metrics
from app.control.tell import slo
from app.control.tell.conditions import CycleFacts, make_statements
from app.control.tell.degrade import Degraded, Shedding, SloTarget, find_degraded, plan_shedding
from app.control.tell.figures import ATTAINED_IN, CycleOutcome, make_figures
from app.control.tell.money import Addition, find_empty_nodes, find_releasable, pose_rental, read_rental
from app.control.tell.statuses import ObjectStatus, StatusWriter, make_job_status
from app.control.tell.transitions import (
    SILENT_SECONDS,
    find_burn_events,
    find_drain_events,
    find_fleet_events,
    find_gateway_events,
)
from app.manifests.fleet import PolicySpec
from app.manifests.model import Key, Kind
from app.store.database import lease
from app.store.database.database import Database, Unavailable
from app.store.fleet import cordons, endpoints, gateways
from app.store.plans import idle_nodes, outlook, plan_reads
from app.store.world import events
from solvers.planning.plan import Certificate, Plan, Releasable, Unserved
from solvers.planning.problem import Problem

RENT_AGAIN_AFTER = timedelta(seconds=60)
PROMISES_AGAIN_AFTER = timedelta(seconds=60)
RENT_SECONDS, RENT_WORK = 3.0, 3


@dataclass(slots=True)
class Announcer:
    """Remembers what it told, so that only what is new is told again. A new leader begins with a new one."""

    database: Database
    solver: PlanSolver
    currency: str = ""  # of all prices
    _saying: StatusWriter = field(default_factory=StatusWriter)
    _sheds: Mapping[str, Shedding] = field(default_factory=dict)
    _reasons: dict[str, Unserved] = field(default_factory=dict)
    _held_back: Sequence[HeldBackChange] = ()
    _certificate: Certificate | None = None
    _rent: tuple[bytes, datetime, Addition | None] | None = None
    _kept: tuple[datetime, Mapping[str, slo.SloStatus]] | None = None
    _before: Snapshot | None = None
    _heard: Mapping[str, float] = field(default_factory=dict)
    _burned: Mapping[str, slo.SloStatus] = field(default_factory=dict)
    _releasable: frozenset[str] = frozenset()
    _drains: tuple[Drain, ...] | None = None

    def prepare(self, snapshot: Snapshot, posed: Question) -> None:
        """Read what telling will need whatever is decided; what cannot be read now is read then."""
        with suppress(Unavailable):
            self._promises_kept(snapshot, posed.problem)

    def tell(self, epoch: int, after: CycleOutcome) -> bool:
        """Everything that follows; False where a newer epoch won, and nothing more may be said."""
        snapshot, problem, plan = after.snapshot, after.posed.problem, after.plan
        self._remember(after)
        mode = mode_of(snapshot)
        terms = terms_of(snapshot.declared)
        spent = {tenant: facts.spent for tenant, facts in snapshot.tenants.items()}
        known = budget_accounts(terms, spent, snapshot.at)
        used = used_by_tenant(problem, used_by_service(problem, plan.instances))
        heard = self.database.read(gateways.heard)
        self._sheds = self._shed(after, heard) if snapshot.target > 0 else {}
        few = {name: Degraded(Reason.TOO_FEW_GPUS, why) for name, why in after.posed.short.items()}
        worse = few | find_degraded(problem, plan, self._sheds, known)
        rent = self._renting(snapshot, problem, plan)
        promises = self._promises_kept(snapshot, problem)
        found = self.database.write(lambda c: self._write(c, epoch, after, rent, promises, heard))
        if found is None:
            return False
        free, jobs, happenings = found
        metrics.count_events(happenings)
        self._releasable = frozenset(one.node for one in free)
        self._before, self._burned, self._heard = snapshot, promises, heard
        attained = {
            name: one.attainment[ATTAINED_IN] for name, one in promises.items() if ATTAINED_IN in one.attainment
        }
        ground = CycleFacts(
            problem, plan, self._reasons, attained, worse, terms, known, problem.limits, used, mode, self.currency
        )
        told = {key: ObjectStatus(statements) for key, statements in make_statements(ground).items()} | jobs
        specs = {Key(Kind(one.kind), one.tenant, one.name): one.spec for one in snapshot.declared}
        self._saying.say(self.database, epoch, told, specs)
        metrics.show_figures(
            make_figures(epoch, after, ground, self._certificate, self._held_back, self._sheds, promises, free)
        )
        return True

    def _remember(self, after: CycleOutcome) -> None:
        if after.decision:
            self._reasons = {one.service: one for one in after.decision.plan.unserved}
            self._certificate = after.decision.plan.certificate
            self._held_back = after.decision.held_back
        for name, reason in after.blamed.items():
            self._reasons[name] = Unserved(name, 0.0, reason)

    def _shed(self, after: CycleOutcome, heard: Mapping[str, float]) -> Mapping[str, Shedding]:
        problem, plan = after.posed.problem, after.plan
        pinned: dict[str, float] = {}
        for _, one in after.posed.pinned:
            name = one.owner
            pinned[name] = pinned.get(name, 0.0) + one.rate_per_second
        acting = acting_services(after.snapshot)
        promises = {name: one for name, one in _promises(problem, plan).items() if name in acting}
        alive = sum(seconds <= SILENT_SECONDS for seconds in heard.values())
        return plan_shedding(plan, after.snapshot.expected, promises, pinned, before=self._sheds, gateways=alive)

    def _write(
        self,
        connection: Connection,
        epoch: int,
        after: CycleOutcome,
        rent: Addition | None,
        promises: Mapping[str, slo.SloStatus],
        heard: Mapping[str, float],
    ) -> tuple[tuple[Releasable, ...], dict[Key, ObjectStatus], list[NewEvent]] | None:
        """In one transaction: limits of gateways, nodes to give back, GPUs to rent, and the events of that."""
        if not lease.held(connection, epoch):
            return None
        snapshot, problem, plan = after.snapshot, after.posed.problem, after.plan
        endpoints.limit(connection, {name: _limit(one) for name, one in self._sheds.items()})
        empty = idle_nodes.keep(connection, find_empty_nodes(problem, plan))
        free = find_releasable(problem, empty, _idle_minutes(snapshot))
        outlook.put(connection, outlook.MONEY, encode_money(free, rent))
        fresh = [one for one in free if one.node not in self._releasable]
        happenings = [
            event_of(Reason.RELEASABLE, f"empty for long; giving it back saves {one.price_per_hour:g} an hour",
                     kind="Node", name=one.node)
            for one in fresh
        ]  # fmt: skip
        if self._before is None:
            happenings.append(event_of(Reason.LEADER_CHANGED, f"epoch {epoch} began", kind="Planner"))
        else:
            happenings += find_fleet_events(self._before, snapshot)
            happenings += find_gateway_events(self._heard, heard)
        happenings += find_burn_events(self._burned, promises)
        happenings += self._drained(connection, snapshot)
        if rent and rent.gpus:
            happenings.append(event_of(Reason.RENT_MORE, rent.words, kind="Plan"))
        events.record(connection, happenings)
        return free, _jobs(snapshot, kept.read(connection)), happenings

    def _drained(self, connection: Connection, snapshot: Snapshot) -> list[NewEvent]:
        """Drains that are through, once the plan is what runs, or late; a new leader only takes note of them."""
        plan = plan_reads.head(connection, snapshot.target)
        if plan is None:
            return []
        asked = [one for one in cordons.listed(connection) if one.mode == "drain"]
        is_rolling = plan["state"] in ("rolling", "paused")
        now = progress(asked, snapshot.standing, snapshot.at, is_rolling=is_rolling)
        # What was empty stays so, whatever else is rolled out.
        through = {one.asked: one for one in self._drains or () if one.is_done} if is_rolling else {}
        before, self._drains = self._drains, tuple(through.get(one.asked, one) for one in now)
        return [] if before is None else find_drain_events(before, self._drains)

    def _renting(self, snapshot: Snapshot, problem: Problem, plan: Plan) -> Addition | None:
        """The cheapest addition, asked of the solver where the question is new, and not with every cycle."""
        prices = {one.name: float(str(one.spec["pricePerHour"])) for one in snapshot.declared if one.kind == "GpuType"}
        asked = pose_rental(problem, plan, prices)
        if asked is None:
            self._rent = None
            return None
        question = msgspec.json.encode(
            sorted((name, round(one.rate_per_second, 1)) for name, one in asked.services.items())
        )
        known = self._rent
        if known and (known[0] == question or snapshot.at < known[1] + RENT_AGAIN_AFTER):
            return known[2]
        answer = self.solver.solve(asked, seconds=RENT_SECONDS, work=RENT_WORK)
        found = read_rental(asked, answer.plan) if answer.plan else None
        self._rent = (question, snapshot.at, found)
        return found

    def _promises_kept(self, snapshot: Snapshot, problem: Problem) -> Mapping[str, slo.SloStatus]:
        """How promises are kept, asked for now and then: it is summed over hours."""
        known = self._kept
        if known is None or snapshot.at >= known[0] + PROMISES_AGAIN_AFTER:
            percentiles = {name: service.percentile for name, service in problem.services.items()}
            known = (snapshot.at, self.database.read(lambda c: slo.assess_all(c, percentiles)))
            self._kept = known
        return known[1]


def acting_services(snapshot: Snapshot) -> set[str]:
    """What is only advised is served by other means: its gateways are not ours to close."""
    mode = mode_of(snapshot)
    return {
        f"{one.tenant}/{one.name}"
        for one in snapshot.declared
        if one.kind == "Service" and one.spec.get("mode", mode) != "advisory"
    }


def encode_money(free: Sequence[Releasable], rent: Addition | None) -> dict[str, Any]:
    """As the API shows it."""
    found: dict[str, Any] = {"releasable": [{"node": one.node, "perHour": one.price_per_hour} for one in free]}
    if rent:
        found["renting"] = {
            "gpus": dict(rent.gpus), "perHour": rent.price_per_hour, "serves": list(rent.serves),
            "inPart": list(rent.in_part), "leaves": list(rent.leaves), "message": rent.words,
        }  # fmt: skip
    return found


def _promises(problem: Problem, plan: Plan) -> dict[str, SloTarget]:
    """What shedding asks of each service; whether anything could serve it, where nothing does."""
    stands, types = {one.service for one in plan.instances}, gpu_types(problem)
    return {
        name: SloTarget(service.slo_ms, name in stands or gpus_per_rate(problem, service, types) < inf)
        for name, service in problem.services.items()
    }


def _limit(one: Shedding) -> endpoints.GatewayLimit:
    return endpoints.GatewayLimit(one.queue_limit, one.share, one.retry_after_seconds)


def _idle_minutes(snapshot: Snapshot) -> float:
    policy: Any = snapshot.spec("Policy", "default") or {}
    return float(policy.get("idleMinutes", PolicySpec.model_fields["idle_minutes"].default))


def _jobs(snapshot: Snapshot, states: Mapping[str, JobState]) -> dict[Key, ObjectStatus]:
    known = declared_work(snapshot.declared)
    return {
        Key(Kind.JOB, *name.split("/", 1)): make_job_status(said_of_job(state, known[name], snapshot.at))
        for name, state in states.items()
        if name in known
    }
