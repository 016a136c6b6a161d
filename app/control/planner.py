"""The planner: leads or waits to lead, runs cycles, answers load quickly, and rolls out the plan in force.

All that it needs is handed in, so that a simulation drives the same code in virtual time. Its methods may be called
from several threads: rollouts advance one at a time, and none of them waits for the solver.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from app.control.act.jobs import JobRounds, apply_plan_to_jobs
from app.control.act.looking import look_at_fleet
from app.control.act.operating import expire_proposal, roll_back_plan
from app.control.act.rolling import CopyLook, take_rollout_step
from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.last_question import CycleResult, LastQuestion
from app.control.domain.decision import PlanState
from app.control.domain.events import Reason
from app.control.domain.leading import Deposed, FleetView
from app.control.domain.ports import LoadForecaster, PlanSolver, ReadLoads
from app.control.domain.snapshot import ExpectedLoad, Snapshot
from app.control.domain.times import cycle_seconds, read_declared_rates, start_seconds
from app.control.fast.base import StepBase
from app.control.fast.lane import FastLane
from app.control.formulate.language import read_declared_lengths
from app.control.formulate.pose import mean_profiles, restore_declared_profiles
from app.control.formulate.question import Question
from app.control.formulate.rivals import find_rivals
from app.control.measure import metrics
from app.control.measure.metrics import PlannerFigures
from app.control.measure.tracing import phase
from app.control.observe.observer import ForecastInput
from app.control.observe.troubles import TroubleWatch
from app.control.record.planner_store import PlannerStore
from app.control.rent.calls import HookCaller
from app.control.rent.hooks import FileHooks
from app.control.rent.renter import Renter
from app.control.rent.rule import AccountRule, RentRule
from app.control.rollout.blocked import LONGEST_GAP_SECONDS
from app.control.tell.announcer import Announcer
from app.control.tell.outcome import CycleOutcome
from app.store.database.database import Unavailable
from app.store.plans.plans import Overtaken
from solvers.planning.kept_bound import what_changed

CYCLE_SECONDS = 30.0
MOST_FORGOTTEN = 200  # plans, at a time
LONGEST_GAP = timedelta(seconds=LONGEST_GAP_SECONDS)  # after a longer one, patience with steps begins again
CLOCK_TOLERANCE = timedelta(seconds=5)  # the database's clock may go back by less: waiting makes that good

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Planner:
    """One planner, possibly of several; only the holder of the lease acts."""

    store: PlannerStore
    solver: PlanSolver
    loads: LoadForecaster
    budget: CycleBudget
    cycle_seconds: float = CYCLE_SECONDS
    currency: str = ""  # of all prices
    hooks: HookCaller = field(default_factory=lambda: FileHooks({}))  # that rent nodes and give them back
    make_rent_rule: Callable[[], RentRule] = AccountRule
    called_for: Reason | None = None  # a cycle is wanted before its time
    _last_question: LastQuestion = field(default_factory=LastQuestion)
    _lane: FastLane = field(init=False)
    _announcer: Announcer = field(init=False)
    _renter: Renter = field(init=False)
    _jobs: JobRounds = field(init=False)
    _last_at: datetime | None = None
    _stepped_at: datetime | None = None
    _proven: frozenset[str] = frozenset()  # shapes that have run in this fleet
    _troubles: TroubleWatch = field(init=False)
    _copies: CopyLook = field(init=False)
    _advancing: threading.Lock = field(default_factory=threading.Lock)
    _answering: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._begin_afresh()

    def lead(self) -> bool:
        """Takes or renews the lease. A new leader knows nothing of the last question of the one before it."""
        now = self.store.moment()
        if self._last_at is not None and now < self._last_at - CLOCK_TOLERANCE:
            # Nothing would count as new until those times come again, so all that is known is dropped.
            log.warning("clock_set_back", extra={"seconds": (self._last_at - now).total_seconds()})
            self.store.epoch = 0
        self._last_at = now
        before = self.store.epoch
        leads = self.store.lead(self._learn_before_leading)
        if self.store.epoch != before:
            if not leads:
                self._forget_everything()
            log.info("leader" if leads else "standing_by", extra={"epoch": self.store.epoch})
        return leads

    def world_moved(self) -> bool:
        """Returns whether a declaration changed since the last cycle; statuses do not count.

        Jobs that arrive alone wait a little for others: `advance` calls for their cycle.
        """
        return self._jobs.others_arrived(self.store)

    def cycle(self, reason: Reason) -> CycleResult | None:
        """Runs one full cycle, if this planner leads."""
        if not self.store.epoch:
            return None
        self.called_for = None
        try:
            with phase("cycle") as exemplar:
                result = self._run_cycle(reason, self._observe())
                if generation := result.generation or (result.snapshot.target if result.snapshot else 0):
                    exemplar["generation"] = str(generation)
            metrics.CYCLES.labels(result.outcome).inc()
            self._last_question = result.last_question
            self._jobs.note_cycle(result)
            if result.overtaken:
                self.called_for = reason
            elif result.snapshot and result.question:
                self.loads.set_slos(result.snapshot.declared)
                self._follow_up(result, result.snapshot, result.question)
            self.loads.store_buckets()
        except Overtaken:
            self.called_for = reason
            return None
        except Deposed as deposed:
            self._step_down(deposed)
            return None
        except Unavailable:
            # Half of it may have been announced: the question is asked again, and its answer announced again.
            self._last_question, self.called_for = LastQuestion(), reason
            raise
        return result

    def advance(self) -> bool:
        """Assigns to nodes the changes of the plan in force that may be made now; returns whether more are to come."""
        with self._advancing:  # an older view must not be assigned after a newer one
            return self._advance(self.store.view) if self.store.epoch else False

    def quicken(self) -> int:
        """Answers loads that moved since the last call; returns the step's generation, 0 if none was needed."""
        with self._answering:
            return self._answer(self.loads.read_recent, time.perf_counter()) if self.store.epoch else 0

    def step(self) -> int:
        """Advances the rollout, then answers loads, by one reading of the database; returns what `quicken` does."""
        began = time.perf_counter()
        with self._advancing:
            if self.store.epoch:
                self._advance(lambda: look_at_fleet(self.store, self.loads))
        with self._answering:
            return self._answer(self.loads.recent, began) if self.store.epoch else 0

    def _answer(self, read: ReadLoads, began: float) -> int:
        seconds: list[float] = []

        def assign() -> None:
            self.advance()
            seconds.append(time.perf_counter() - began)

        # Loads are read even before the first plan, which will be made for them.
        try:
            troubled = self._lane.answer_troubles(self._troubles, self._look_around, assign)
            self.called_for = troubled.calls_for or self.called_for
            now, recent = read()
            _observe_steps(seconds, troubled.generation)
            step = self._lane.answer(recent, now, assign)
            _observe_steps(seconds, step.generation)
        except Deposed as deposed:
            self._step_down(deposed)
            return 0
        self.called_for = step.calls_for or self.called_for
        return step.generation

    def learn(self) -> None:
        """Corrects profiles by what was measured; to be called every minute."""
        base = self._lane.base
        if not self.store.epoch or base is None:
            return
        try:
            declared = restore_declared_profiles(base.question.problem, base.snapshot)
            if self.loads.learn(self.store.epoch, declared, mean_profiles(base.snapshot)):
                self.called_for = Reason.CORRECTED
        except Deposed as deposed:
            self._step_down(deposed)

    def rent_nodes(self) -> None:
        """Carries out what pools have ordered and give back; to be called every few seconds."""
        try:
            if self.store.epoch:
                self._renter.carry_out(self.store.epoch, self.store.world, self.store.silence)
        except Deposed as deposed:
            self._step_down(deposed)

    def forget(self, days: float, most_bytes: float) -> int:
        """Drops old decisions; returns how many."""
        try:
            return self.store.forget(days, most_bytes, MOST_FORGOTTEN) if self.store.epoch else 0
        except Deposed as deposed:
            self._step_down(deposed)
            return 0

    # Parts of a cycle

    def _run_cycle(self, reason: Reason, snapshot: Snapshot) -> CycleResult:
        store, solver, question, meanwhile = self.store, self.solver, self._last_question, self._announcer.prepare
        return run_cycle(store, solver, snapshot, question, self.budget, reason, meanwhile, self.loads.measured)

    def _observe(self) -> Snapshot:
        """Reads what to decide from. If a person asked for an earlier plan, rolls back to it before anything else."""
        with phase("observe"):
            snapshot = self._look_around()
        if not roll_back_plan(self.store, snapshot):
            return snapshot
        self._last_question = LastQuestion()
        return self._look_around()

    def _look_around(self) -> Snapshot:
        return self.store.snapshot(self._expect_loads)

    def _expect_loads(self, known: ForecastInput) -> Mapping[str, ExpectedLoad]:
        rates, starts = read_declared_rates(known.declared), start_seconds(known.declared)
        every = cycle_seconds(known.declared)
        planned = known.rates.planned
        for name, rate in self._lane.rates_of_rising_models(known.at).items():
            planned[name] = max(rate, planned.get(name, 0.0))
        ahead = {name: every + starts[name] for name in rates}
        rivals = partial(find_rivals, known, known.is_held)
        lengths = read_declared_lengths(known.declared)
        return self.loads.expect(rates, planned, ahead, known.at, lengths, known.rates.short, rivals)

    def _follow_up(self, result: CycleResult, snapshot: Snapshot, question: Question) -> None:
        """Makes the cycle's plan the base of quick steps, and announces what follows from it."""
        try:
            if result.decision and result.searched:
                is_made = result.decision.state is PlanState.ROLLING
                follows = result.decision.desired if is_made else snapshot.in_force
                apply_plan_to_jobs(
                    self.store.database, self.store.epoch, result.searched, result.decision.plan, follows
                )
            self.cycle_seconds = cycle_seconds(snapshot.declared)
            self._lane.set_base(snapshot, question, result, start_seconds(snapshot.declared))
            base = self._lane.base
            if base is not None:
                self._announce(result, snapshot, question, base)
                self._lane.make_ready()  # after the announcement: this keeps a core busy
            expire_proposal(self.store, snapshot)
            if base is not None:  # last, as it may ask the solver twice
                with phase("rent"):
                    self._renter.decide(self.store.epoch, snapshot, question.problem, base.plan, self.loads.foresee)
        except Overtaken:
            self.called_for = Reason.OVERTAKEN
        except Deposed as deposed:
            self._step_down(deposed)

    def _announce(self, result: CycleResult, snapshot: Snapshot, question: Question, base: StepBase) -> None:
        shown = result.decision.answer.plan if result.decision and not base.snapshot.target else None
        # The plan in force as the base has it, and all else as it is now.
        now = replace(snapshot, in_force=base.snapshot.in_force, target=base.snapshot.target)
        kept = self._lane.kept_bound
        changed = what_changed(kept.problem, question.problem) if kept else ""
        outcome = CycleOutcome(now, base.question, shown or base.plan, result.decision, changed, result.blamed)
        if not self._announcer.announce(self.store.epoch, outcome):
            raise Deposed(f"epoch {self.store.epoch} is over")

    # Parts of a rollout's step

    def _advance(self, look: Callable[[], FleetView]) -> bool:
        try:
            epoch, view = self.store.epoch, look()
            if view.epoch != epoch:
                raise Deposed(f"epoch {epoch} is over")
            gap = self._stepped_at is None or view.at > self._stepped_at + LONGEST_GAP
            step = take_rollout_step(self.store, view, self._proven, self.loads.trials, after_a_gap=gap)
            self._stepped_at = view.at
            self._announcer.copies = self._copies.count(view)
            self._lane.is_paused = view.plan is not None and view.plan.state == PlanState.PAUSED
            self._lane.assigned = step.assignments
            self._lane.moved(step.moving, view.at)
            self._jobs.advance(self.store, view, self.loads.take_job_readings)
        except Deposed as deposed:
            self._step_down(deposed)
            return False
        metrics.show_rollout(None if step.done or view.plan is None else view.plan.rolling_since)
        if step.calls_for:
            self._lane.forget_base()
            self._troubles.note_falls(step.fallen)
            self.called_for = self.called_for or step.calls_for
        due = Reason.JOB_APPLIED if self._jobs.is_due(view.at) else None
        self.called_for = self.called_for or due or self._troubles.look(view.status)
        return not step.done

    # Leading

    def _learn_before_leading(self) -> None:
        """Reads loads and proven shapes before leading: a plan made without them would take back what load needs."""
        self._forget_everything()
        self._proven, last = self.store.read_learned()
        self.loads.begin(last)

    def _step_down(self, deposed: Deposed) -> None:
        log.warning("deposed", extra={"reason": str(deposed)})
        self.store.epoch = 0
        self._forget_everything()

    def _forget_everything(self) -> None:
        self._last_question, self.called_for = LastQuestion(), Reason.FIRST_PLAN
        self._stepped_at = None
        self._begin_afresh()
        metrics.show_figures(PlannerFigures())
        metrics.show_rollout(None)

    def _begin_afresh(self) -> None:
        self._troubles, self._copies = TroubleWatch(), CopyLook()
        self._announcer = Announcer(self.store.database, self.solver, self.store.skip_statuses, self.currency)
        self._renter = Renter(
            self.store.database, self.solver, self.hooks, self.store.skip_statuses, self.make_rent_rule
        )
        self._lane, self._jobs = FastLane(self.store, self.solver), JobRounds()


def _observe_steps(seconds: list[float], generation: int) -> None:
    """Takes the times of steps that were assigned, and shows them with the plan that they made."""
    while seconds:
        metrics.FAST_SECONDS.observe(seconds.pop(), {"generation": str(generation)})
