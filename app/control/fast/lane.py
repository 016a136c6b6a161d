"""Takes quick steps: from the plan in force to a recorded, assigned step, which is the base of the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.control.decide.decide import find_modes, split_by_mode
from app.control.decide.last_question import CycleResult
from app.control.domain.decision import Decision, PlanState, SolveOutcome
from app.control.domain.desired import Desired
from app.control.domain.events import NewEvent, Reason, event_of, reason_of
from app.control.domain.mode import AUTO
from app.control.domain.ports import PlanSolver
from app.control.domain.readings import LoadReading
from app.control.domain.snapshot import Snapshot
from app.control.fast.base import StepBase, step_base
from app.control.fast.drafting import draft_step, note_calls
from app.control.fast.fallen import draft_base
from app.control.fast.ladder import QuickStep
from app.control.fast.leaving import draft_leaving, find_shortfalls
from app.control.fast.watch import CapacityNeed, LoadWatch, watch_loads
from app.control.formulate.failed_places import close_failed_places
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.formulate.running import treat_drains_as_cordons
from app.control.observe.troubles import TroubleWatch
from app.control.record.planner_store import PlannerStore
from app.control.solve.recorded import RecordingSolver
from app.store.database.database import Unavailable
from app.store.plans.plans import Overtaken
from solvers.planners.names import JOINT
from solvers.planning.kept_bound import KeptBound

SETTLES_AFTER = timedelta(seconds=30)  # for so long a hand-over's late answers are in the readings
RISING_FOR = timedelta(seconds=30)  # until a forecast counts a jump by itself


@dataclass(frozen=True, slots=True)
class LaneResult:
    """The generation that a step recorded, or 0, and the reason for a full cycle, if one is needed."""

    generation: int = 0
    calls_for: Reason | None = None


@dataclass(slots=True)
class FastLane:
    """Leads from the plan in force to the next one by a small step. Its methods may be called from several threads."""

    store: PlannerStore
    solver: PlanSolver
    base: StepBase | None = None
    kept_bound: KeptBound | None = None  # of the last search
    assigned: Desired | None = None  # what runs and starts, as of the last step of the rollout
    is_paused: bool = False  # a person has paused the rollout, as of the last look at it
    _starts: Mapping[str, float] = field(default_factory=dict)
    _watches: Mapping[str, LoadWatch] = field(default_factory=dict)
    _moved_at: Mapping[str, datetime] = field(default_factory=dict)
    _rising: Mapping[str, tuple[float, datetime]] = field(default_factory=dict)  # language models: rate needed, when
    _deciding: threading.RLock = field(default_factory=threading.RLock)  # a step replaces the base it was made from

    def set_base(self, snapshot: Snapshot, question: Question, found: CycleResult, starts: Mapping[str, float]) -> None:
        """Makes the plan in force after a cycle the base of steps."""
        self._starts = starts
        with self._deciding:
            self.kept_bound = found.kept_bound or self.kept_bound
            if found.generation and found.decision and found.decision.state is PlanState.ROLLING:
                snapshot = replace(snapshot, in_force=found.decision.desired, target=found.generation)
                question = formulate(snapshot)
            # What could not leave a draining GPU serves on there until a full cycle finds a way.
            nodes = treat_drains_as_cordons(snapshot.nodes)
            if nodes != snapshot.nodes:
                snapshot = replace(snapshot, nodes=nodes)
                question = formulate(snapshot)
            base = self.base
            if not (
                base
                and base.snapshot.target == snapshot.target
                and base.snapshot.failed_places == snapshot.failed_places
                and base.question.fingerprint == question.fingerprint
            ):
                self.base = step_base(snapshot, question)

    def forget_base(self) -> None:
        """Drops the base, as the rollout left changes of its plan out; the next cycle sets another."""
        self.base = None  # without the lock: a rollout may be advanced while a step holds it

    def make_ready(self) -> None:
        """Prepares the solver before a step needs it."""
        base = self.base
        if base and base.ordinary:
            self.solver.prepare(*base.ordinary)

    def moved(self, services: Iterable[str], now: datetime) -> None:
        """Notes services whose latency says little for a while, since their instances are being changed."""
        # A new mapping each time: another thread may be reading the old one.
        recent = {name: at for name, at in self._moved_at.items() if at > now - SETTLES_AFTER}
        self._moved_at = recent | dict.fromkeys(services, now)

    def answer(self, readings: Mapping[str, LoadReading], now: datetime, tell: Callable[[], object]) -> LaneResult:
        """Takes a step for loads that have moved, if one is needed; `tell` assigns it to the nodes."""
        base = self.base
        if base is None or not base.snapshot.target or self.is_paused:
            return LaneResult()
        if base.question.problem.policy.planner != JOINT:
            return LaneResult()  # steps between cycles are the joint planner's
        with self._deciding:
            if self.base is not base:
                return LaneResult()
            if base.snapshot.is_paused:  # no longer: its base is from before the rollout was resumed
                base = self.base = replace(base, snapshot=replace(base.snapshot, is_paused=False))
            moving = {name for name, at in self._moved_at.items() if now < at + SETTLES_AFTER}
            moving |= base.language_models  # late tokens ask for no plan: it would be the same
            watched = watch_loads(self._watches, base.planned(self._starts), readings, now.timestamp(), moving)
            self._watches = watched.watches
            if watched.needs:
                amid = base.amid_rollout(self.assigned)
                if self.base is not base:  # forgotten meanwhile
                    return LaneResult(calls_for=Reason.LOAD_ROSE)
                base = self.base = amid
                return self._answer(base, watched.needs, now, tell)
        base.judged  # noqa: B018 (for the step that may come)
        return LaneResult()

    def rates_of_rising_models(self, now: datetime) -> Mapping[str, float]:
        """Returns the rates for which language models lately needed a full plan: forecasts see such loads later."""
        return {name: rate for name, (rate, at) in self._rising.items() if now < at + RISING_FOR}

    def answer_troubles(
        self, troubles: TroubleWatch, look: Callable[[], Snapshot], tell: Callable[[], object]
    ) -> LaneResult:  # fmt: skip
        """Answers notices of reclaim and copies that fell, once each."""
        notices, fallen = troubles.take_notices(), troubles.take_falls()
        if not notices and not fallen:
            return LaneResult()
        try:
            snapshot = look()
            return self.leave(snapshot, tell) if notices else self.replace_fallen(snapshot, fallen, tell)
        except Unavailable:
            troubles.give_back(notices, fallen)
            raise

    def leave(self, snapshot: Snapshot, tell: Callable[[], object]) -> LaneResult:
        """Moves what runs on nodes that will be reclaimed, as far as that is possible at once; a full cycle follows."""
        calls = LaneResult(calls_for=Reason.RECLAIM_NOTICE)
        with self._deciding:
            recording = RecordingSolver(self.solver)
            drafted = draft_leaving(snapshot, recording, self.kept_bound)
            decision, shortfalls = drafted.decision, list(find_shortfalls(snapshot, drafted.held_back))
            if decision is None:
                if shortfalls:
                    self.store.note(SolveOutcome.UNCHANGED, Reason.RECLAIM_SHORT, "", None, shortfalls)
                return calls
            try:
                decision = replace(decision, drafts=tuple(recording.drafts))
                (generation,) = self.store.record(snapshot, [decision], shortfalls)
            except Overtaken:
                return calls
            self.base = None  # the next cycle sets it
            tell()
        return LaneResult(generation, Reason.RECLAIM_NOTICE)

    def replace_fallen(self, snapshot: Snapshot, fallen: Collection[str], tell: Callable[[], object]) -> LaneResult:
        """Serves elsewhere what copies of these services carried that fell, if a small step can; a full cycle follows.

        The GPUs where copies failed are closed to everything new, as in a cycle.
        """
        calls = LaneResult(calls_for=Reason.INSTANCE_DOWN)
        if snapshot.is_paused or not snapshot.target:
            return calls
        around = close_failed_places(replace(snapshot, nodes=treat_drains_as_cordons(snapshot.nodes)))
        base, needs = draft_base(around, fallen)
        if base.question.problem.policy.planner != JOINT or not needs:
            return calls
        with self._deciding:
            self.base = base
            step = self._step(base, needs, snapshot.at, tell)
        return replace(step, calls_for=Reason.INSTANCE_DOWN)

    def _answer(
        self, base: StepBase, needs: Sequence[CapacityNeed], now: datetime, tell: Callable[[], object]
    ) -> LaneResult:
        """Takes a step for ordinary services, and calls for a full plan for language models."""
        models = [need for need in needs if need.service in base.language_models]
        others = [need for need in needs if need.service not in base.language_models]
        step = self._step(base, others, now, tell) if others else LaneResult()
        # Proposals and advice need not be quick.
        rising = {need.service: (need.least, now) for need in models if _is_auto(base, need.service)}
        self._rising = {**self._rising, **rising}  # a new mapping each time: a cycle may be reading the old one
        return replace(step, calls_for=Reason.LOAD_ROSE) if rising else step

    def _step(
        self, base: StepBase, needs: Sequence[CapacityNeed], now: datetime, tell: Callable[[], object]
    ) -> LaneResult:
        recording = RecordingSolver(self.solver)
        drafted = draft_step(base, needs, recording, now, self.kept_bound)
        if drafted is None:
            return LaneResult(calls_for=Reason.LOAD_ROSE)
        quick, decision = drafted.quick, drafted.decision
        short = Reason.LOAD_ROSE if quick.unserved or drafted.left_out else None
        if decision.answer.outcome is SolveOutcome.WRONG:
            return self._refuse(decision)
        if not base.question.problem.services.keys() & set(decision.services):
            # No small step helps. A job that has come nearer to its turn is no reason for a plan.
            return LaneResult(calls_for=short)
        acting = split_by_mode(base.snapshot, decision)
        if not acting or acting[0].state is not PlanState.ROLLING:
            # Proposals and advice need not be quick: the cycle makes them.
            return LaneResult(calls_for=Reason.LOAD_ROSE if drafted.left_out else None)
        # Of a fall an event has told already, with what its node said.
        events = [] if quick.reason == Reason.INSTANCE_DOWN else [_event_of(quick)]
        try:
            step = replace(acting[0], drafts=tuple(recording.drafts))
            (generation,) = self.store.record(note_calls(base.snapshot, needs), [step], events)
        except Overtaken:
            self.base = None  # the next cycle sets it
            return LaneResult(calls_for=Reason.LOAD_ROSE)
        tell()
        if self.store.epoch and self.base is base:  # if it still leads, and nothing was left out
            self.base = base.after(quick, acting[0], generation)
            self.make_ready()
        return LaneResult(generation, short)

    def _refuse(self, decision: Decision) -> LaneResult:
        """Notes that the solver's step breaks a rule; a full plan serves the load instead."""
        reason, message = Reason.SOLVER_WRONG, decision.answer.message
        self.store.note(SolveOutcome.WRONG, reason, message, None, [event_of(reason, message)])
        return LaneResult(calls_for=Reason.LOAD_ROSE)


def _event_of(quick: QuickStep) -> NewEvent:
    """Returns the event of a step; it is about the service if the step is for a single one."""
    reason = reason_of(quick.reason) or Reason.LOAD_ROSE
    if len(quick.services) > 1:
        return event_of(reason, quick.message)
    return event_of(reason, quick.message, kind="Service", name=quick.services[0])


def _is_auto(base: StepBase, service: str) -> bool:
    return find_modes(base.snapshot, [service]) == {AUTO}
