"""Checks the newest plan of a small fleet against CP-SAT, whose model and search are not the planner's, at rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import Connection

from app.control.answer.replay import Record, record_of
from app.control.domain.events import Reason, event_of
from app.control.domain.leading import Deposed
from app.control.domain.snapshot import DeclaredObject
from app.control.domain.specs import gpu_count
from app.control.formulate.formulate import formulate
from app.control.record.planner_store import PlannerStore
from app.control.solve.aside import Aside
from app.control.solve.process import SolverProcess
from app.store.database import lease
from app.store.plans import cross_checks
from app.store.plans.cross_checks import PlanCheck
from app.store.world import events
from app.worker.process import WorkerDied, WorkerLate
from solvers.crosscheck import TOLERANCE_SHARE, CrossCheck, TooLarge, cross_check
from solvers.crosscheck.scope import MOST_GPUS, MOST_SERVICES
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, list_unserved
from solvers.planning.problem import Problem
from solvers.planning.search.promise import keep

WORK = 10.0  # of CP-SAT's deterministic seconds
MOST_SECONDS = 120.0
NICE = 19
AGAINST = "checked against CP-SAT"


@dataclass(frozen=True, slots=True)
class CheckPlan(Aside[PlanCheck]):
    """The order to compare a plan with the cheapest one, hand-overs and jobs aside, which CP-SAT's model leaves out."""

    problem: Problem
    plan: Plan

    def answered(self) -> PlanCheck:
        """Returns the comparison; why there is none, where the fleet has too many shapes or the check fails."""
        try:
            return self._compare(cross_check(self._narrow(), WORK))
        except TooLarge as large:
            return _skip(str(large))
        except Exception as error:
            return _skip(f"{type(error).__name__}: {error}")

    def _narrow(self) -> Problem:
        return replace(self.problem, jobs={}, state=None)

    def _compare(self, found: CrossCheck) -> PlanCheck:
        instances = self.plan.instances
        alone = Plan(instances, (), list_unserved(self.problem, instances))
        own = judge(self._narrow(), alone, simulate=False, keeps=keep)
        if not own.is_right:
            return _skip(f"without its jobs the plan breaks a rule: {own.violations[0]}")
        cost, least = own.cost.total, found.cost if found.is_proved else found.bound
        checked = PlanCheck("same", f"{AGAINST}: the same cost", cost, found.bound)
        if found.is_above(cost):
            message = f"contradicted by CP-SAT: it costs {cost:.6g}, and no plan costs less than {found.bound:.6g}"
            return replace(checked, outcome="contradiction", message=message)
        if (cheaper := self._find_below_bound(found)) is not None:
            message = f"contradicted by CP-SAT: its bound is above the {cheaper:.6g} that a plan costs"
            return replace(checked, outcome="contradiction", message=message)
        if cost <= least + TOLERANCE_SHARE * max(1.0, least):
            return checked
        most = f"{(cost - least) / cost:.2%}"
        if found.is_proved:
            words = f"{AGAINST}: the cheapest plan, hand-overs and jobs aside, costs {most} less"
            return replace(checked, outcome="dearer", message=words)
        words = f"{AGAINST}, which ran out of work: no plan, hand-overs and jobs aside, costs over {most} less"
        return replace(checked, outcome="unproved", message=words)

    def _find_below_bound(self, found: CrossCheck) -> float | None:
        """Returns what the plan that was found costs with its hand-overs, where that is below the certified bound."""
        bound = self.plan.certificate.bound if self.plan.certificate else None
        if bound is None or found.plan is None or self.problem.jobs:
            return None
        cost = judge(self.problem, found.plan, simulate=False, keeps=keep).cost.total
        return cost if cost < bound - TOLERANCE_SHARE * max(1.0, bound) else None


def _skip(why: str) -> PlanCheck:
    return PlanCheck("unchecked", f"not {AGAINST}: {why}")


Ask: TypeAlias = Callable[[CheckPlan], PlanCheck | None]


class RestingProcess:
    """Answers each check by a process of its own, of the lowest priority, so that no cycle waits for it."""

    def __init__(self, cores: int) -> None:
        self._cores = cores
        self._process: SolverProcess | None = None
        self._is_closed = False

    def ask(self, order: CheckPlan) -> PlanCheck | None:
        """Returns what the check finds; None if it is closed before: the next planner checks the plan."""
        process = self._process = SolverProcess("checks", NICE, self._cores, is_warm=False)
        try:
            found: PlanCheck | None = None if self._is_closed else process.ask(order, MOST_SECONDS).result()
            return found
        except (WorkerDied, WorkerLate) as error:
            return None if self._is_closed else _skip(str(error))
        finally:
            process.close()

    def close(self) -> None:
        """Ends a check that is under way, and begins none any more."""
        self._is_closed = True
        if self._process:
            self._process.close()


def check_newest(store: PlannerStore, ask: Ask) -> PlanCheck | None:
    """Checks the plan in force, if the fleet is small, its plan was searched and not checked; None otherwise."""
    epoch = store.epoch
    if not epoch or not _is_small(store.world()):
        return None
    record = store.database.read(_read_unchecked)
    if record is None or record.plan is None:
        return None
    problem = formulate(record.snapshot).problem
    instances = [line for line in record.plan.instances if line.service in problem.services]
    plan = replace(record.plan, instances=tuple(line for line in instances if line.node in problem.nodes))
    check = ask(CheckPlan(problem, plan))
    if check is None:
        return None

    def write(connection: Connection) -> None:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        cross_checks.keep(connection, record.generation, check)
        if check.outcome == "contradiction":
            message = f"plan {record.generation}: {check.message}; one of the two is wrong, please report it"
            events.record(
                connection,
                [event_of(Reason.PLAN_CONTRADICTED, message, kind="Plan", generation=record.generation)],
            )

    store.database.write(write)
    return check


def _is_small(declared: tuple[DeclaredObject, ...]) -> bool:
    services = sum(item.kind == "Service" for item in declared)
    gpus = sum(gpu_count(item.spec) for item in declared if item.kind == "Node")
    return 0 < services <= MOST_SERVICES and gpus <= MOST_GPUS


def _read_unchecked(connection: Connection) -> Record | None:
    generation = cross_checks.find_unchecked(connection)
    return record_of(connection, generation) if generation else None
