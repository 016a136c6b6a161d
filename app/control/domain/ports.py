"""The protocols of the planner's partners: the solver that answers its questions and the forecast of loads."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Protocol, TypeAlias

from agents.contract.assignments import AssignedInstance
from app.control.domain.decision import SolverAnswer
from app.control.domain.readings import CopyTrial, JobReading, LoadReading
from app.control.domain.snapshot import DeclaredObject, ExpectedLoad
from app.store.fleet.load_news import LoadNews, NewsQuestion
from solvers.llm.iteration import TokenLengths
from solvers.planning.batches.batch import GroupRow, MoveLimit
from solvers.planning.measured import MeasuredInstance
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, Profile, ProfileKey

ReadLoads: TypeAlias = Callable[[], tuple[datetime, Mapping[str, LoadReading]]]  # the time, and each service's load
Meanwhile: TypeAlias = Callable[[], object]  # what the caller does while it waits for the answer


def just_wait() -> None:
    """Does nothing while the solver works."""


class BatchMaker(Protocol):
    """Changes a plan by batches of moves."""

    def make_batches(self, problem: Problem, plan: Plan, groups: GroupRow, *, seconds: float) -> SolverAnswer: ...


class FollowingSolver(Protocol):
    """The solver's short way from a plan to other rates."""

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer: ...


class PlanSolver(FollowingSolver, BatchMaker, Protocol):
    """Solves problems: in a process with a deadline, or in this process for simulations."""

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer: ...
    def prepare(self, problem: Problem, plan: Plan) -> None: ...
    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer: ...
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
    ) -> SolverAnswer: ...


Rivals: TypeAlias = Callable[[Collection[str]], Collection[str]]  # who holds what services that are short could run on


class LoadForecaster(Protocol):
    """Knows the load of each service and predicts it."""

    def begin(self, last: Mapping[str, ExpectedLoad]) -> None: ...
    def set_slos(self, declared: Sequence[DeclaredObject]) -> None: ...
    def ask(self) -> NewsQuestion: ...
    def take(self, asked: NewsQuestion, news: LoadNews | None) -> None: ...
    def recent(self) -> tuple[datetime, Mapping[str, LoadReading]]: ...
    def read_recent(self) -> tuple[datetime, Mapping[str, LoadReading]]: ...
    def learn(self, epoch: int, problem: Problem, means: Mapping[ProfileKey, Profile]) -> bool: ...
    def store_buckets(self) -> None: ...
    def take_job_readings(self) -> Sequence[JobReading]: ...
    def measured(self) -> Mapping[str, MeasuredInstance]: ...
    def foresee(self, ahead_seconds: float) -> Mapping[str, float]: ...
    def trials(self, wanted: Mapping[str, AssignedInstance]) -> Mapping[str, CopyTrial]: ...
    def expect(
        self,
        declared: Mapping[str, float],
        planned: Mapping[str, float],
        ahead: Mapping[str, float],
        now: datetime,
        lengths: Mapping[str, TokenLengths],
        short: Mapping[str, float] = MappingProxyType({}),
        rivals: Rivals = frozenset,
    ) -> Mapping[str, ExpectedLoad]: ...
