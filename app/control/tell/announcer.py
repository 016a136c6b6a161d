"""Announces a cycle: limits to gateways, conditions to objects, events and metrics to operators, money to tenants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from sqlalchemy import Connection

from app.control.domain.desired import CopyCounts
from app.control.domain.events import NewEvent, Reason
from app.control.domain.mode import read_modes
from app.control.domain.policy import planner_policy
from app.control.domain.ports import PlanSolver
from app.control.domain.snapshot import Snapshot
from app.control.formulate.question import Question
from app.control.formulate.tenants import budget_accounts, terms_of
from app.control.jobs import rows as job_rows
from app.control.jobs.state import JobState, read_declared_work
from app.control.jobs.status import job_status
from app.control.measure import metrics
from app.control.tell.announcement import Announcement
from app.control.tell.conditions import CycleFacts, make_statements
from app.control.tell.degrade.degradation import Degraded, find_degraded
from app.control.tell.figures import ATTAINED_IN, LastAnswer, make_figures
from app.control.tell.gateway_limits import GatewayLimits
from app.control.tell.held import held_per_hour, list_planned_gpus
from app.control.tell.history import AnnouncedHistory
from app.control.tell.money import Addition, find_empty_nodes, find_releasable
from app.control.tell.outcome import CycleOutcome
from app.control.tell.rental import RentalAdvisor
from app.control.tell.slo import SloReader
from app.control.tell.statuses import ObjectStatus, SkipVersions, StatusWriter, make_job_status
from app.control.tell.sums import PlanSums, add_up
from app.manifests.model import JSON, Key, Kind
from app.store.database import lease
from app.store.database.database import Database, Unavailable
from app.store.fleet import endpoints, fleet_minutes
from app.store.fleet.announced import read as read_announced
from app.store.fleet.fleet_minutes import FleetCost
from app.store.plans import idle_nodes, outlook
from app.store.plans.outlook import MoneyOutlookWire
from app.store.world import events
from solvers.planning.plan import Releasable

BLOCKED = "changes of its copies waited with nothing under way; they are left out until the next plan"


@dataclass(frozen=True, slots=True)
class AnnouncementResult:
    """The result of an announcement, for the statuses and metrics that follow it."""

    free: tuple[Releasable, ...]
    held_per_hour: float
    jobs: dict[Key, ObjectStatus]
    events: Sequence[NewEvent]


@dataclass(slots=True)
class Announcer:
    """Announces what has changed since the last cycle. Each new leader starts with a new one."""

    database: Database
    solver: PlanSolver
    skip: SkipVersions
    currency: str = ""  # of all prices
    copies: Mapping[str, CopyCounts] = field(default_factory=dict)  # by service, as of the last look at the fleet
    _answer: LastAnswer = field(default_factory=LastAnswer)
    _slos: SloReader = field(default_factory=SloReader)
    _limits: GatewayLimits = field(default_factory=GatewayLimits)
    _rental: RentalAdvisor = field(init=False)
    _history: AnnouncedHistory = field(default_factory=AnnouncedHistory)
    _statuses: StatusWriter = field(init=False)
    _sums: PlanSums | None = None

    def __post_init__(self) -> None:
        self._rental = RentalAdvisor(self.solver)
        self._statuses = StatusWriter(self.skip)

    def prepare(self, snapshot: Snapshot, question: Question) -> None:
        """Reads ahead, while the solver works, what the announcement needs in any case."""
        with suppress(Unavailable):  # the announcement reads it then
            self._slos.read(self.database, snapshot.at, question.problem)

    def announce(self, epoch: int, outcome: CycleOutcome) -> bool:
        """Announces the outcome; False where a newer epoch leads, so that nothing more may be written."""
        snapshot, problem = outcome.snapshot, outcome.question.problem
        self._answer.update(outcome)
        before = self.database.read(lambda connection: read_announced(connection, snapshot.target))
        announced = Announcement(
            epoch=epoch,
            outcome=outcome,
            sheds=self._limits.plan(outcome, before.silence),
            rent=self._rental.advise(snapshot, problem, outcome.plan),
            slos=self._slos.read(self.database, snapshot.at, problem),
            before=before,
        )
        written = self.database.write(lambda connection: self._write(connection, announced))
        if written is None:
            return False
        metrics.count_events(written.events)
        self._history.remember(announced, written.free)
        sums = self._sums = add_up(problem, outcome.plan, self._sums)
        facts = self._facts(announced, sums)
        specs = {
            Key(Kind(declared.kind), declared.tenant, declared.name): declared.spec for declared in snapshot.declared
        }
        self._statuses.write(self.database, epoch, make_statuses(facts) | written.jobs, specs)
        metrics.show_figures(make_figures(announced, facts, self._answer, written.free, written.held_per_hour, sums))
        return True

    def _write(self, connection: Connection, announced: Announcement) -> AnnouncementResult | None:
        """Writes limits of gateways, releasable nodes, GPUs to rent and their events in one transaction.

        What is as it was read is not written again: under this epoch no other planner has written since.
        """
        if not lease.is_newest(connection, announced.epoch):
            return None
        outcome, before = announced.outcome, announced.before
        limits = {
            name: endpoints.GatewayLimit(shed.queue_limit, shed.share, shed.retry_after_seconds, shed.in_time)
            for name, shed in announced.sheds.items()
        }
        if endpoints.find_limiting(limits) != before.limits:
            endpoints.set_limits(connection, limits)
        nodes = find_empty_nodes(outcome.question.problem, outcome.plan)
        is_same = set(nodes) == before.idle.keys()
        empty = {node: before.idle[node] for node in nodes} if is_same else idle_nodes.keep(connection, nodes)
        free = find_releasable(outcome.question.problem, empty, planner_policy(outcome.snapshot.declared).idle_minutes)
        held = held_per_hour(outcome.snapshot, before.held)
        money = encode_money(free, announced.rent, held)
        if money != before.money:
            outlook.put(connection, outlook.MONEY, money)
        planned = held_per_hour(outcome.snapshot, list_planned_gpus(outcome.plan))
        fleet_minutes.keep_cost(connection, FleetCost(held, planned, self._answer.least_cost(outcome)))
        found = self._history.find_events(announced, free)
        events.record(connection, found)
        return AnnouncementResult(free, held, _job_statuses(outcome.snapshot, job_rows.states_of(before.jobs)), found)

    def _facts(self, announced: Announcement, sums: PlanSums) -> CycleFacts:
        outcome = announced.outcome
        snapshot, problem, plan = outcome.snapshot, outcome.question.problem, outcome.plan
        terms = terms_of(snapshot.declared)
        spent = {tenant: facts.spent for tenant, facts in snapshot.tenants.items()}
        known = budget_accounts(terms, spent, snapshot.at)
        too_few = {name: Degraded(Reason.TOO_FEW_GPUS, why) for name, why in outcome.question.shortages.items()}
        blocked = {name: Degraded(Reason.ROLLOUT_BLOCKED, BLOCKED) for name in snapshot.blocked}
        return CycleFacts(
            problem=problem,
            plan=plan,
            reasons=self._answer.reasons,
            attained={
                name: status.attainment[ATTAINED_IN]
                for name, status in announced.slos.items()
                if ATTAINED_IN in status.attainment
            },
            degraded=too_few | blocked | find_degraded(problem, plan, announced.sheds, known),
            terms=terms,
            accounts=known,
            limits=problem.limits,
            used=sums.used,
            mode=read_modes(snapshot.declared, snapshot.is_held).fleet,
            is_held=snapshot.is_held,
            currency=self.currency,
            copies=self.copies,
        )


def make_statuses(facts: CycleFacts) -> dict[Key, ObjectStatus]:
    """Returns the statuses of all services and tenants."""
    found = {}
    for key, statements in make_statements(facts).items():
        counts = facts.copies.get(key.full_name) if key.kind is Kind.SERVICE else None
        copies: dict[str, JSON] = {"planned": counts.planned, "routed": counts.routed} if counts else {}
        found[key] = ObjectStatus(statements, {"copies": copies} if counts else {})
    return found


def encode_money(free: Sequence[Releasable], rent: Addition | None, held_per_hour: float) -> MoneyOutlookWire:
    """Returns the price of the GPUs that hold services, nodes to give back and GPUs to rent as the API shows them."""
    found: MoneyOutlookWire = {
        "heldPerHour": round(held_per_hour, 6),
        "releasable": [{"node": node.node, "perHour": node.price_per_hour} for node in free],
    }
    if rent:
        found["renting"] = {
            "gpus": dict(rent.gpus), "perHour": rent.price_per_hour, "serves": list(rent.serves),
            "inPart": list(rent.in_part), "leaves": list(rent.leaves), "message": rent.words,
        }  # fmt: skip
    return found


def _job_statuses(snapshot: Snapshot, states: Mapping[str, JobState]) -> dict[Key, ObjectStatus]:
    known = read_declared_work(snapshot.declared)
    return {
        Key(Kind.JOB, *name.split("/", 1)): make_job_status(job_status(state, known[name], snapshot.at))
        for name, state in states.items()
        if name in known
    }
