"""Orders to add what a running plan leaves unserved by HetSev's greedy, and the warm process that carries them out.

It is another process than the joint solver's, with another method: what stops one of them does not stop the other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING

from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.solve.aside import Aside
from app.control.solve.process import SolverProcess
from app.worker.process import WorkerDied, WorkerLate
from solvers.planning.problem import Problem

if TYPE_CHECKING:
    from solvers.hetsev.fleet import FleetDelta

FIXED = ("gpu_types", "nodes", "models", "profiles", "jobs", "policy", "limits")
PREPARE_SECONDS = 120.0

_prepared: list[FleetDelta] = []  # at most one, in the process that carries out orders


@dataclass(frozen=True, slots=True)
class PrepareAdding(Aside[bool]):
    """The order to read and judge what runs, ready to be added to."""

    problem: Problem

    def answered(self) -> bool:
        """Prepares; what fails here fails again, and is reported, where something is to be added."""
        try:
            delta = _read(self.problem)
            delta.add()  # compiled loops and tables are warm after a first round
            delta.prepare()
        except Exception:
            return False
        return True


@dataclass(frozen=True, slots=True)
class AddMissing(Aside[SolverAnswer]):
    """The order to add what a running plan leaves unserved at these rates."""

    problem: Problem
    rates: Mapping[str, float]

    def answered(self) -> SolverAnswer:
        """Returns the plan, or why there is none."""
        began = time.monotonic()
        try:
            plan, _ = _read(self.problem).add(self.rates)
        except Exception as error:  # a bug of the greedy is reported, and the last plan stays in force
            _prepared.clear()
            return SolverAnswer(SolveOutcome.WRONG, None, f"{type(error).__name__}: {error}")
        return SolverAnswer(SolveOutcome.SOLVED, plan, seconds=time.monotonic() - began)


def _read(problem: Problem) -> FleetDelta:
    from solvers.hetsev.fleet import FleetDelta

    if not _prepared or _prepared[0].problem is not problem:
        _prepared[:] = [FleetDelta.of(problem)]
    return _prepared[0]


def add_to_running(problem: Problem) -> SolverAnswer:
    """Returns the running plan with what it leaves unserved, found in the caller's process."""
    from solvers.hetsev.fleet import add_missing

    began = time.monotonic()
    try:
        plan = add_missing(problem)
    except Exception as error:
        return SolverAnswer(SolveOutcome.WRONG, None, f"{type(error).__name__}: {error}")
    return SolverAnswer(SolveOutcome.SOLVED, plan, seconds=time.monotonic() - began)


class AddingProcess:
    """One process, started by the first plan that it prepares for."""

    def __init__(self, nice: int, cores: int) -> None:
        # Of the joint solver's many loops it calls few, and loads them as it prepares for a plan.
        self.process = SolverProcess("fallback", nice, cores, is_warm=False)
        self._base: Problem | None = None
        self._lock = Lock()

    def prepare(self, problem: Problem) -> None:
        """Starts to prepare for this problem, without waiting."""
        with self._lock:
            if self._base is not problem:
                self._base = problem
                self.process.ask(PrepareAdding(problem), PREPARE_SECONDS)

    def add(self, problem: Problem, seconds: float) -> SolverAnswer:
        """Returns the plan that runs with what is missing; from the prepared problem if only rates differ from it."""
        began = time.monotonic()
        with self._lock:
            base = self._base
        rates = None if base is None else other_rates(base, problem)
        order = AddMissing(problem, {}) if base is None or rates is None else AddMissing(base, rates)
        asked = self.process.ask(order, seconds)
        try:
            answer: SolverAnswer = asked.result(seconds)  # also where an earlier order holds the process up
        except (WorkerLate, TimeoutError) as late:
            asked.cancel()
            message = str(late) or f"no answer within {seconds:g} s"
            return SolverAnswer(SolveOutcome.OUT_OF_TIME, None, message, seconds=time.monotonic() - began)
        except WorkerDied as died:
            return SolverAnswer(SolveOutcome.CRASHED, None, str(died), seconds=time.monotonic() - began)
        return answer

    def close(self) -> None:
        """Ends the process."""
        self.process.close()


def other_rates(base: Problem, problem: Problem) -> dict[str, float] | None:
    """Returns the rates that differ; None if anything else differs that an addition may depend on."""
    if problem.jobs or base.services.keys() != problem.services.keys():
        return None
    if any(getattr(base, name) != getattr(problem, name) for name in FIXED):
        return None
    running = [problem.state.running if problem.state else () for problem in (base, problem)]
    if running[0] != running[1]:
        return None
    found = {}
    for name, service in problem.services.items():
        was = base.services[name]
        if was.rate_per_second != service.rate_per_second:
            if replace(was, rate_per_second=service.rate_per_second) != service:
                return None
            found[name] = service.rate_per_second
        elif was != service:
            return None
    return found
