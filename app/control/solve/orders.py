"""Orders for solvers, and their answers as values: a solver's failure is an outcome, not an exception."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.specs import Spec
from app.manifests.model import JSON
from app.worker.values import pickle_by_values
from solvers.planners.names import JOINT
from solvers.planners.portfolio import ask_others
from solvers.planning.batches.batch import Batch, GroupRow, MoveLimit
from solvers.planning.beside import ordinary_part
from solvers.planning.parts import divide_as
from solvers.planning.plan import Plan
from solvers.planning.problem import Demand, Instance, Knowledge, Node, Problem, Profile, RunningState, Service
from solvers.planning.replay import replay_plan
from solvers.planning.shortfalls import add_shortfalls
from solvers.planning.solve import SolveBudget, find

if TYPE_CHECKING:
    from solvers.planning.kept_search import KeptSearch
    from solvers.planning.parts.follow import PlanFollower

BRIEF_MINUTES = 3.0  # the horizon of a brief search

pickle_by_values(Instance, Service, Node, Profile, Demand)  # a problem and a plan have thousands of them


@dataclass(frozen=True, slots=True)
class Solve:
    """The order to find a plan from the problem alone."""

    problem: Problem
    seconds: float | None
    work: int | None
    seed: int = 0
    patience_seconds: float = inf
    bounds_of_others: bool = True  # no decision about a plan of another planner than the joint one depends on its bound


@dataclass(frozen=True, slots=True)
class Repeat:
    """The order to find a plan again by the work that was counted."""

    problem: Problem
    counted: Mapping[str, JSON]


@dataclass(frozen=True, slots=True)
class Prepare:
    """The order to get ready to follow this plan."""

    problem: Problem
    plan: Plan
    base: int = 0  # the number of this preparation


@dataclass(frozen=True, slots=True)
class Follow:
    """The order to adapt the prepared plan to new rates of some services."""

    rates: Mapping[str, float]
    base: int = 0


@dataclass(frozen=True, slots=True)
class FindBatches:
    """The order to find batches of moves that make a plan cheaper."""

    problem: Problem
    plan: Plan
    known: Sequence[GroupRow]
    tries: int
    seed: int
    seconds: float | None = None
    checks: int | None = None  # after so many there was no time left; None: the clock says when
    limit: MoveLimit | None = None


@dataclass(frozen=True, slots=True)
class MakeBatches:
    """The order to make the batches of these groups."""

    problem: Problem
    plan: Plan
    groups: GroupRow


@dataclass
class SearchMemory:
    """Holds what the last search for a bound has kept for the next one."""

    kept: KeptSearch | None = None


def solve_order(order: Solve, *, alone: bool = False, memory: SearchMemory | None = None) -> SolverAnswer:
    """Finds the best plan within the budget. It counts the steps, so that it can be repeated without a clock.

    What the memory holds makes the bound higher; the plan of a step does not depend on it.
    """
    began, without_answer = time.monotonic(), count_before(order)

    def made() -> SolverAnswer:
        if order.problem.policy.planner != JOINT:
            without_answer["planner"] = order.problem.policy.planner
            return _plan(order, alone=alone)
        budget = SolveBudget(order.seconds, order.work, order.seed, order.patience_seconds)
        kept = memory.kept if memory else None
        found = find(order.problem, budget, alone=alone, others=ask_others, kept=kept)
        if memory:
            memory.kept = found.kept or memory.kept
        counted: dict[str, JSON] = {
            "seed": order.seed,
            "work": found.work,
            "exact": found.is_exact,
            "cut": found.is_cut,
            "horizonMinutes": order.problem.policy.horizon_minutes,
        }
        is_short = found.is_cut and order.work is not None
        cut = f"the time ran out after step {found.work}" if is_short else ""
        plan = add_shortfalls(order.problem, found.plan, budget)
        return SolverAnswer(SolveOutcome.SOLVED, plan, cut, counted, time.monotonic() - began, found.duals)

    return _make_outcome(made, without_answer, began)


def _plan(order: Solve, *, alone: bool) -> SolverAnswer:
    """Asks the planner that the policy names; what it knew is counted, too."""
    from solvers.planners.ask import find_plan

    began, planner, state = time.monotonic(), order.problem.policy.planner, order.problem.state
    counted: dict[str, JSON] = {
        "planner": planner,
        "knowledge": dict(state.knowledge) if state else {},
        "seed": order.seed,
        "work": order.work,
        "horizonMinutes": order.problem.policy.horizon_minutes,
    }
    budget = SolveBudget(order.seconds, order.work, order.seed)
    found = find_plan(order.problem, planner, budget, alone=alone, bounds=order.bounds_of_others)
    plan = add_shortfalls(order.problem, found.plan, budget) if order.bounds_of_others else found.plan
    seconds = time.monotonic() - began
    return SolverAnswer(SolveOutcome.SOLVED, plan, "", counted, seconds, found.duals, found.knowledge)


def briefly(problem: Problem) -> Problem:
    """Returns the problem with a short horizon, so that only needed changes pay."""
    return set_horizon(problem, min(problem.policy.horizon_minutes, BRIEF_MINUTES))


def set_horizon(problem: Problem, minutes: float) -> Problem:
    """Returns the problem with another time within which changes are to repay their churn."""
    return replace(problem, policy=replace(problem.policy, horizon_minutes=minutes))


def set_knowledge(problem: Problem, knowledge: Knowledge) -> Problem:
    """Returns the problem with what planners remember."""
    return replace(problem, state=replace(problem.state or RunningState(), knowledge=knowledge))


def count_before(order: Solve) -> dict[str, JSON]:
    """Returns what is known of the work of an order that got no answer."""
    return {"seed": order.seed, "work": order.work}


def repeat_plan(order: Repeat) -> SolverAnswer:
    """Finds the same plan by the same steps."""
    began, counted = time.monotonic(), order.counted
    if "planner" in counted:
        return _make_outcome(lambda: _repeat_plan(order), counted, began)

    def made() -> SolverAnswer:
        seed, work = counted["seed"], counted["work"]
        assert isinstance(seed, int)
        assert isinstance(work, int)
        minutes = counted["horizonMinutes"]
        assert isinstance(minutes, int | float)
        problem = set_horizon(order.problem, minutes)
        plan = replay_plan(problem, seed, work, is_exact=bool(counted["exact"]), others=ask_others)
        return SolverAnswer(SolveOutcome.SOLVED, plan, "", counted, time.monotonic() - began)

    return _make_outcome(made, counted, began)


def _repeat_plan(order: Repeat) -> SolverAnswer:
    from solvers.planners.ask import find_plan

    counted: Spec = order.counted
    problem = set_knowledge(set_horizon(order.problem, counted["horizonMinutes"]), counted["knowledge"])
    budget = SolveBudget(None, counted["work"], counted["seed"])
    found = find_plan(problem, counted["planner"], budget, bounds=False)
    return SolverAnswer(SolveOutcome.SOLVED, found.plan, "", counted, knowledge=found.knowledge)


def prepare_replanner(order: Prepare) -> PlanFollower:
    """Returns a replanner that holds the plan ready to be followed."""
    from solvers.planning.parts.follow import PlanFollower

    return PlanFollower.of(order.problem, order.plan)


def follow_rates(replanner: PlanFollower, order: Follow) -> SolverAnswer:
    """Adapts the plan to new rates. The replanner cannot be used again: its next answer would start from this one.

    The answer depends on problem, plan and rates alone, so that a replay can reproduce it.
    """
    began = time.monotonic()

    def made() -> SolverAnswer:
        reasons = "; ".join(replanner.change(order.rates))
        return SolverAnswer(SolveOutcome.SOLVED, replanner.plan, reasons, seconds=time.monotonic() - began)

    return _make_outcome(made, {}, began)


def batches_found(order: FindBatches) -> SolverAnswer:
    """Finds batches within the number of tries and seconds."""
    from solvers.planning.batches.find import find_batches

    began = time.monotonic()
    time_left = _TimeLeft(None if order.seconds is None else began + order.seconds, order.checks)

    def made() -> SolverAnswer:
        found: tuple[Batch, ...] = ()
        ordinary = ordinary_part(order.problem, order.plan)  # full plans alone move language models
        if ordinary[0].services and ordinary[0].nodes:
            division = divide_as(*ordinary)
            problem, plan = (division.problem, division.split_plan(ordinary[1])) if division else ordinary
            limit = order.limit
            if limit and division:
                limit = replace(limit, whole=division.services_of_parts)
            found = find_batches(
                problem, plan, order.known, tries=order.tries, seed=order.seed, limit=limit, has_time=time_left.has_time
            )
        counted: dict[str, JSON] = {"checks": time_left.checks}
        return SolverAnswer(SolveOutcome.SOLVED, counted=counted, seconds=time.monotonic() - began, batches=found)

    return _make_outcome(made, {}, began)


@dataclass(slots=True)
class _TimeLeft:
    """Says whether time is left, and counts how often it was, so that a replay ends where this search ended."""

    ends_at: float | None
    most_checks: int | None
    checks: int = 0

    def has_time(self) -> bool:
        is_left = self.ends_at is None or time.monotonic() < self.ends_at
        if self.most_checks is not None:
            is_left = self.checks < self.most_checks
        self.checks += is_left
        return is_left


def batches_made(order: MakeBatches) -> SolverAnswer:
    """Makes batches one after the other; without a plan if they save nothing."""
    from solvers.planning.finish import make_batches

    began = time.monotonic()

    def made() -> SolverAnswer:
        plan = make_batches(order.problem, order.plan, order.groups)
        return SolverAnswer(SolveOutcome.SOLVED, plan, seconds=time.monotonic() - began)

    return _make_outcome(made, {}, began)


def _make_outcome(made: Callable[[], SolverAnswer], counted: Mapping[str, JSON], began: float) -> SolverAnswer:
    try:
        return made()
    except Exception as error:  # a solver's bug is reported, and the last plan stays in force
        return SolverAnswer(SolveOutcome.WRONG, None, spell_error(error), counted, time.monotonic() - began)


def spell_error(error: Exception) -> str:
    """Formats an error for the log."""
    return f"{type(error).__name__}: {error}"
