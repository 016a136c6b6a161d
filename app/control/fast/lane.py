"""What a quick step starts from, and what becomes of it: on record, told to nodes, and the start of the next one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.control.decide.decide import split_by_mode
from app.control.decide.last_question import CycleResult
from app.control.domain.decision import PlanState
from app.control.domain.events import Reason, event_of, reason_of
from app.control.domain.ports import PlanSolver
from app.control.domain.readings import LoadReading
from app.control.domain.snapshot import Snapshot
from app.control.fast.base import StepBase, step_base
from app.control.fast.ladder import find_quick_step
from app.control.fast.watch import CapacityNeed, LoadWatch, watch_loads
from app.control.formulate.formulate import formulate
from app.control.formulate.question import Question
from app.control.formulate.running import without_drains
from app.control.record.planner_store import PlannerStore
from app.store.plans.plans import Overtaken

SETTLES_AFTER = timedelta(seconds=30)  # a hand-over's late answers are in what is heard for so long


@dataclass(frozen=True, slots=True)
class LaneResult:
    """What came of a look: the generation that it recorded, or 0, and the full cycle that it calls for."""

    generation: int = 0
    calls_for: Reason | None = None


@dataclass(slots=True)
class FastLane:
    """From the plan in force to the next one by a small step. Its methods may be called from several threads."""

    store: PlannerStore
    solver: PlanSolver
    base: StepBase | None = None
    _starts: Mapping[str, float] = field(default_factory=dict)
    _watches: Mapping[str, LoadWatch] = field(default_factory=dict)
    _moved_at: Mapping[str, datetime] = field(default_factory=dict)
    _deciding: threading.RLock = field(default_factory=threading.RLock)  # what follows from the base replaces it

    def stand(self, snapshot: Snapshot, posed: Question, found: CycleResult, starts: Mapping[str, float]) -> None:
        """The plan that is in force after a cycle is what steps start from."""
        self._starts = starts
        with self._deciding:
            if found.generation and found.decision and found.decision.state is PlanState.ROLLING:
                snapshot = replace(snapshot, in_force=found.decision.desired, target=found.generation)
                posed = formulate(snapshot)
            # What had no way off a draining GPU serves on there until a full cycle finds one.
            nodes = without_drains(snapshot.nodes)
            if nodes != snapshot.nodes:
                snapshot = replace(snapshot, nodes=nodes)
                posed = formulate(snapshot)
            base = self.base
            if not (base and base.snapshot.target == snapshot.target and base.posed.fingerprint == posed.fingerprint):
                self.base = step_base(snapshot, posed)

    def make_ready(self) -> None:
        """What a step will need, made ready while nobody waits for it."""
        if base := self.base:
            self.solver.prepare(base.posed.problem, base.plan)

    def moved(self, services: Iterable[str], now: datetime) -> None:
        """What is heard of these says little for a while: their instances are being changed."""
        # A new one each time: another thread may be reading the one before.
        recent = {name: at for name, at in self._moved_at.items() if at > now - SETTLES_AFTER}
        self._moved_at = recent | dict.fromkeys(services, now)

    def answer(self, seen: Mapping[str, LoadReading], now: datetime, tell: Callable[[], object]) -> LaneResult:
        """A step for what has moved since the last look, where one is needed; `tell` brings it to the nodes."""
        base = self.base
        if base is None or not base.snapshot.target:
            return LaneResult()
        with self._deciding:
            if self.base is not base:
                return LaneResult()
            moving = {name for name, at in self._moved_at.items() if now < at + SETTLES_AFTER}
            watched = watch_loads(self._watches, base.planned(self._starts), seen, now.timestamp(), moving)
            self._watches = watched.watches
            if watched.needs:
                return self._stepped(base, watched.needs, tell)
        base.judged  # noqa: B018 (for the step that may come)
        return LaneResult()

    def _stepped(self, base: StepBase, needs: Sequence[CapacityNeed], tell: Callable[[], object]) -> LaneResult:
        strict = next(iter(base.snapshot.in_force.values())).handover == "strict" if base.snapshot.in_force else False
        quick = find_quick_step(
            base.posed.problem, base.plan, needs, self.solver, strict=strict, elsewhere=base.elsewhere
        )
        if quick is None:
            return LaneResult(calls_for=Reason.LOAD_ROSE)
        short = Reason.LOAD_ROSE if quick.unserved else None
        snapshot, decision = base.decided(quick)
        if not base.posed.problem.services.keys() & set(decision.services):
            # No small step helps. That a job has come nearer to its turn meanwhile is no reason for a plan.
            return LaneResult(calls_for=short)
        acting = split_by_mode(snapshot, decision)
        if not acting or acting[0].state is not PlanState.ROLLING:
            return LaneResult()  # who may not act need not be quick: the cycle proposes and shows
        said = event_of(reason_of(quick.reason) or Reason.LOAD_ROSE, quick.message)
        try:
            (generation,) = self.store.record(snapshot, acting[:1], [said])
        except Overtaken:
            self.base = None  # the next cycle says what stands
            return LaneResult(calls_for=Reason.LOAD_ROSE)
        tell()
        if self.store.epoch:  # still: then to be ready for the next one
            self.base = base.after(quick, acting[0], generation)
            self.make_ready()
        return LaneResult(generation, short)
