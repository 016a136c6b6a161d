"""The planner: leads or stands by, runs cycles, answers load quickly, and brings nodes to the plan in force.

Everything it rests on is handed in, so that a simulation drives the same code in virtual time. Its methods may be
called from several threads: what follows from a plan is one at a time, and solving keeps nobody waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.control.act.jobs import answer, live
from app.control.act.operating import expire, rolled_back, undoing
from app.control.act.rolling import bring
from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.last_question import CycleResult, LastQuestion
from app.control.domain.events import Reason
from app.control.domain.leading import Deposed, FleetView
from app.control.domain.ports import LoadForecaster, PlanSolver
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad, Snapshot
from app.control.domain.times import cycle_seconds, start_seconds
from app.control.fast.lane import FastLane
from app.control.formulate.question import Question
from app.control.jobs import GatheringWindow, count_arrivals
from app.control.measure import metrics
from app.control.measure.metrics import PlannerFigures
from app.control.measure.tracing import phase
from app.control.observe.observer import ForecastInput
from app.control.record.planner_store import PlannerStore
from app.control.tell.announcer import Announcer
from app.control.tell.outcome import CycleOutcome
from app.store.database.database import Unavailable
from app.store.plans import retention
from app.store.plans.plans import Overtaken
from solvers.planning.plan import Plan

CYCLE_SECONDS = 30.0
FORGOTTEN_AT_ONCE = 200
LONGEST_GAP = timedelta(seconds=15)  # between two looks at a rollout
LIFE_EVERY = timedelta(seconds=2)
ENDS = (Reason.JOB_FINISHED, Reason.JOB_FAILED)  # what they held is free
SET_BACK = timedelta(seconds=5)  # of the database's clock: less is made good by waiting

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Planner:
    """One of possibly several; only the one that holds the lease acts."""

    store: PlannerStore
    solver: PlanSolver
    loads: LoadForecaster
    budget: CycleBudget = field(default_factory=CycleBudget)
    cycle_seconds: float = CYCLE_SECONDS
    currency: str = ""  # of all prices
    called_for: Reason | None = None  # a cycle is wanted before its time
    _last_question: LastQuestion = field(default_factory=LastQuestion)
    _lane: FastLane = field(init=False)
    _announcer: Announcer = field(init=False)
    _last_at: datetime | None = None
    _lived_at: datetime | None = None
    _brought_at: datetime | None = None
    _declared: Sequence[DeclaredObject] | None = None  # that the last cycle knew
    _window: GatheringWindow = field(default_factory=GatheringWindow)
    _proven: frozenset[str] = frozenset()
    _ailing: tuple[frozenset[tuple[str, int]], frozenset[str]] = (frozenset(), frozenset())
    _advancing: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._lane = FastLane(self.store, self.solver)
        self._announcer = Announcer(self.store.database, self.solver, self.currency)

    def world_moved(self) -> bool:
        """Whether anything is declared otherwise than the last cycle knew; statuses do not count.

        Jobs that come alone wait a little for others: `advance` calls for their cycle.
        """
        if self._declared is None:
            return True
        came = count_arrivals(self._declared, self.store.world())
        if came.jobs and not came.others and self._window.since is None:
            self._window = self._window.arrived(self.store.moment().timestamp(), came.jobs)
        return came.others > 0

    def lead(self) -> bool:
        """Take or renew the lease; a new leader knows nothing of what the one before it asked."""
        now = self.store.moment()
        if self._last_at is not None and now < self._last_at - SET_BACK:
            # All that we know would be news again only once those times come again: we begin anew.
            log.warning("clock_set_back", extra={"seconds": (self._last_at - now).total_seconds()})
            self.store.epoch = 0
        self._last_at = now
        before = self.store.epoch
        leads = self.store.lead(self._begin)
        if self.store.epoch != before:
            if not leads:
                self._forget_everything()
            log.info("leader" if leads else "standing_by", extra={"epoch": self.store.epoch})
        return leads

    def _begin(self) -> None:
        """What a new leader has to know before it may act: a plan made without it would take back what load needs."""
        self._forget_everything()
        self._proven = self.store.proven_shapes()
        self.loads.begin()

    def cycle(self, reason: Reason = Reason.CYCLE) -> CycleResult | None:
        """One full cycle, if we lead."""
        if not self.store.epoch:
            return None
        self.called_for = None
        try:
            with phase("cycle"):
                self._undo()
                found = run_cycle(
                    self.store,
                    self.solver,
                    self._expecting,
                    self._last_question,
                    self.budget,
                    reason,
                    self._announcer.prepare,
                )
            metrics.CYCLES.labels(found.outcome).inc()
            self._last_question = found.last_question
            self._gathered(found)
            if found.overtaken:
                self.called_for = reason
            elif found.snapshot and found.posed:
                self.loads.set_slos(found.snapshot.declared)
                self._follow(found, found.snapshot, found.posed)
            self.loads.store_buckets()
        except Overtaken:
            self.called_for = reason
            return None
        except Deposed as deposed:
            self._step_down(deposed)
            return None
        except Unavailable:
            # Half of it may have been said: the same question is asked anew, and its answer told again.
            self._last_question, self.called_for = LastQuestion(), reason
            raise
        return found

    def _undo(self) -> None:
        """What somebody wants undone is undone before anything new is decided."""
        if undoing(self.store) and rolled_back(self.store, self.store.snapshot(self._expecting), self.store.view()):
            self._last_question = LastQuestion()

    def _gathered(self, found: CycleResult) -> None:
        """The cycle has seen all that waited; how long jobs wait for company next follows from what still does."""
        plan = found.decision.plan if found.decision else Plan(())
        self._window = self._window.planned(len(plan.unserved), len(plan.unplaced), failed=bool(plan.unplaced))
        if found.snapshot:
            self._declared = found.snapshot.declared

    def _follow(self, found: CycleResult, snapshot: Snapshot, posed: Question) -> None:
        """What a cycle leads to: quick steps start from its plan, and everybody is told what follows from it."""
        try:
            if found.decision:
                answer(self.store.database, self.store.epoch, snapshot, found.decision.plan)
            self.cycle_seconds = cycle_seconds(snapshot.declared)
            self._lane.stand(snapshot, posed, found, start_seconds(snapshot.declared))
            base = self._lane.base
            if base is not None:
                shown = found.decision.answer.plan if found.decision and not base.snapshot.target else None
                # Of the plan in force as the base has it, and of all else as it is now.
                now = replace(snapshot, in_force=base.snapshot.in_force, target=base.snapshot.target)
                blamed = {f"{one.tenant}/{one.name}": found.message for one in found.suspects if one.kind == "Service"}
                after = CycleOutcome(now, base.posed, shown or base.plan, found.decision, blamed)
                if not self._announcer.tell(self.store.epoch, after):
                    raise Deposed(f"epoch {self.store.epoch} is over")
                self._lane.make_ready()  # told first: this keeps a core busy
            expire(self.store, snapshot)
        except Overtaken:
            self.called_for = Reason.OVERTAKEN
        except Deposed as deposed:
            self._step_down(deposed)

    def advance(self) -> bool:
        """Tell nodes what of the plan in force may be changed now; whether there is more to come."""
        with self._advancing:  # an older look must not be told after a newer one
            return self._advanced() if self.store.epoch else False

    def _advanced(self) -> bool:
        try:
            look = self.store.view()
            gap = self._brought_at is None or look.at > self._brought_at + LONGEST_GAP
            brought = bring(self.store, look, self._proven, self.loads.trials, after_a_gap=gap)
            self._brought_at = look.at
            self._lane.moved(brought.moving, look.at)
            self._live(look)
        except Deposed as deposed:
            self._step_down(deposed)
            return False
        if self._window.is_due(look.at.timestamp()):
            self.called_for = self.called_for or Reason.JOB_APPLIED
        if (look.status.ailing, look.status.lost) != self._ailing:
            self._ailing = (look.status.ailing, look.status.lost)
            self.called_for = self.called_for or Reason.NODE_LOST
        return not brought.done

    def _live(self, look: FleetView) -> None:
        """Jobs get on; what those that are over held is free for others."""
        if self._lived_at is not None and look.at < self._lived_at + LIFE_EVERY:
            return
        self._lived_at = look.at
        happened = live(self.store.database, self.store.epoch, look, self.loads.take_job_readings())
        if over := sum(one.reason in ENDS for one in happened):
            self._window = self._window.arrived(look.at.timestamp(), over)

    def quicken(self) -> int:
        """Answer what moved since the last look, and tell nodes; the step's generation, 0 where none was needed."""
        if not self.store.epoch:
            return 0
        began, now = time.perf_counter(), self.store.moment()

        def tell() -> None:
            self.advance()
            metrics.FAST_SECONDS.observe(time.perf_counter() - began)

        # Looked at also where nothing stands yet: what is asked decides what will.
        try:
            step = self._lane.answer(self.loads.read_recent(), now, tell)
        except Deposed as deposed:
            self._step_down(deposed)
            return 0
        self.called_for = step.calls_for or self.called_for
        return step.generation

    def learn(self) -> None:
        """Correct profiles by what was measured: to be called every minute."""
        base = self._lane.base
        if not self.store.epoch or base is None:
            return
        try:
            if self.loads.learn(self.store.epoch, base.posed.problem, base.snapshot.corrections):
                self.called_for = Reason.CORRECTED
        except Deposed as deposed:
            self._step_down(deposed)

    def forget(self, days: float, most_bytes: float) -> int:
        """Drop old decisions; how many went."""
        if not self.store.epoch:
            return 0
        return self.store.database.write(lambda c: retention.forget(c, days, most_bytes, FORGOTTEN_AT_ONCE))

    def _expecting(self, known: ForecastInput) -> Mapping[str, ExpectedLoad]:
        services = {f"{one.tenant}/{one.name}": one for one in known.declared if one.kind == "Service"}
        rates = {name: float(str(one.spec["ratePerSecond"])) for name, one in services.items()}
        starts, every = start_seconds(known.declared), cycle_seconds(known.declared)
        return self.loads.expect(rates, known.planned, {name: every + starts[name] for name in rates}, known.at)

    def _step_down(self, deposed: Deposed) -> None:
        log.warning("deposed", extra={"reason": str(deposed)})
        self.store.epoch = 0
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._last_question, self.called_for = LastQuestion(), Reason.FIRST_PLAN
        self._lane = FastLane(self.store, self.solver)
        self._declared, self._window = None, GatheringWindow()
        self._brought_at = self._lived_at = None
        self._announcer = Announcer(self.store.database, self.solver, self.currency)
        metrics.show_figures(PlannerFigures())
