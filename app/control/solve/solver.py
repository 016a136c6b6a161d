"""The planner's solver: asks its processes, waits no longer than the deadline, and always returns an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from threading import Lock
from time import monotonic

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.solve.adding import AddingProcess
from app.control.solve.orders import FindBatches, Follow, MakeBatches, Prepare, Repeat, Solve, count_before
from app.control.solve.process import SolverProcess
from app.manifests.model import JSON
from app.worker.process import WorkerDied, WorkerLate
from solvers.planning.batches.batch import GroupRow, MoveLimit
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem

GRACE_SECONDS = 15.0  # for reading the problem, the first plan, judging and finding reasons
PREPARE_SECONDS = 120.0
NOTHING_COUNTED: Mapping[str, JSON] = {}
SOONER_NICE = 5  # steps of niceness, worth three times the share of a core


class Solver:
    """Warm processes: one for whole plans, one that follows rates, so that neither waits for the other.

    A third one adds what is missing by another method when the first gives no plan.
    """

    def __init__(self, *, nice: int = 15, cores: int = 1, grace_seconds: float = GRACE_SECONDS) -> None:
        # They share cores; a late quick step means late answers, so it has priority over a better plan.
        self.adding = AddingProcess(max(0, nice - SOONER_NICE), cores)
        self.full, self.fast = (
            SolverProcess("full", nice, cores, on_compiling=self.adding.process.start),
            SolverProcess("fast", max(0, nice - SOONER_NICE), cores),
        )
        self._grace_seconds = grace_seconds
        self._lock = Lock()
        self._bases = 0  # how many plans were prepared
        self._base: _Base | None = None
        self.full.start()

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        """Returns a plan after so many seconds of search and so much work; the process has a grace to answer.

        It returns at once while the solver compiles its loops: a plan of the second method is there sooner.
        """
        order = Solve(problem, seconds, work, seed)
        if self.full.is_compiling():
            meanwhile()
            return SolverAnswer(SolveOutcome.COMPILING, None, "", count_before(order))
        return _answer_of(self.full, order, seconds + self._grace_seconds, count_before(order), meanwhile)

    def repeat(self, problem: Problem, counted: Mapping[str, JSON], *, seconds: float) -> SolverAnswer:
        """Returns the plan that was found by the work that was counted."""
        return _answer_of(self.full, Repeat(problem, counted), seconds, counted)

    def prepare(self, problem: Problem, plan: Plan) -> None:
        """Starts to prepare this plan, without waiting. An earlier plan that still waits for that is dropped."""
        self._prepare(problem, plan)
        self.adding.prepare(problem)

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        """Returns the running plan with what it leaves unserved, from a process of its own."""
        return self.adding.add(problem, seconds)

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        """Returns the plan with the changes that new rates need; out of time also if the plan is not prepared yet."""
        began = monotonic()
        base = self._prepare(problem, plan)
        try:
            ready: SolverAnswer = base.ready.result(seconds)
            if ready.outcome is SolveOutcome.SOLVED:
                remaining_seconds = max(seconds - (monotonic() - began), 0.0)
                ready = _answer_of(self.fast, Follow(rates, base.number), remaining_seconds)
        except TimeoutError:
            return SolverAnswer(SolveOutcome.OUT_OF_TIME, None, "this plan is not prepared yet", seconds=seconds)
        except (WorkerDied, WorkerLate, CancelledError) as error:
            ready = SolverAnswer(SolveOutcome.CRASHED, None, str(error))
        if ready.outcome is not SolveOutcome.SOLVED:
            self._forget(base)
        return ready

    def find_batches(
        self,
        problem: Problem,
        plan: Plan,
        known: Sequence[GroupRow],
        *,
        tries: int,
        seed: int,
        seconds: float,
        limit: MoveLimit | None = None,
    ) -> SolverAnswer:
        """Returns batches of moves that make the plan cheaper."""
        order = FindBatches(problem, plan, tuple(known), tries, seed, seconds, limit=limit)
        return _answer_of(self.full, order, seconds + self._grace_seconds)

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer:
        """Returns the plan with the batches of these groups."""
        return _answer_of(self.full, MakeBatches(problem, plan, groups), seconds + self._grace_seconds)

    def close(self) -> None:
        """Ends all processes."""
        self.full.close()
        self.fast.close()
        self.adding.close()

    def _prepare(self, problem: Problem, plan: Plan) -> _Base:
        with self._lock:
            base = self._base
            if base is None or base.problem is not problem or base.plan is not plan:
                if base:
                    base.ready.cancel()
                self._bases += 1
                order = Prepare(problem, plan, self._bases)
                base = self._base = _Base(problem, plan, self._bases, self.fast.ask(order, PREPARE_SECONDS))
            return base

    def _forget(self, base: _Base) -> None:
        """Forgets the prepared plan, so that the next order prepares it again."""
        with self._lock:
            if self._base is base:
                self._base = None


@dataclass(frozen=True, slots=True)
class _Base:
    """A plan that is prepared, or is being prepared."""

    problem: Problem
    plan: Plan
    number: int
    ready: Future[SolverAnswer]


def _answer_of(
    process: SolverProcess, order: object, seconds: float, counted: Mapping[str, JSON] = NOTHING_COUNTED,
    meanwhile: Meanwhile = just_wait,
) -> SolverAnswer:  # fmt: skip
    began = monotonic()
    answering = process.ask(order, seconds)
    meanwhile()
    try:
        answer: SolverAnswer = answering.result()
    except WorkerLate as late:
        return SolverAnswer(SolveOutcome.OUT_OF_TIME, None, str(late), counted, monotonic() - began)
    except WorkerDied as died:
        return SolverAnswer(SolveOutcome.CRASHED, None, str(died), counted, monotonic() - began)
    return answer
