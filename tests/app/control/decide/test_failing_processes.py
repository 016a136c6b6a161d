"""The joint solver's real processes are killed, stopped or made to lie while load rises: the greedy serves it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from threading import Timer
from typing import Any

import pytest
from sqlalchemy import text

from app.control.cycle import CycleBudget
from app.control.domain.decision import SolverAnswer
from app.control.domain.ports import Meanwhile, just_wait
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.solve.process import SolverProcess
from app.control.solve.solver import Solver
from simulation.fleet.history import count_attained_shares
from simulation.run import WORK, Simulation, open_simulation
from simulation.shapes import spike
from solvers.hetsev.fleet import METHOD
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from tests.simulation.worlds import CALM_TICK_SECONDS, small

BEGINS = 90.0
RISES = {"shop/a": spike(BEGINS, hold_seconds=3600.0)}
KILLED_AFTER_SECONDS = 0.2
TICK_SECONDS = 5.0  # each may start a process in place of one that failed
FAULTS = {"killed": "crashed", "stopped": "out_of_time", "lying": "wrong"}
MADE = text("SELECT changes FROM plan WHERE method = :method ORDER BY generation")


class Troubled(Solver):
    """A solver with real processes, of which those of the joint planner fail."""

    fault = ""

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        self._strike(self.full)
        return self._spoiled(
            super().solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile), problem
        )

    def follow(self, problem: Problem, plan: Plan, rates: Mapping[str, float], *, seconds: float) -> SolverAnswer:
        self._strike(self.fast)
        return self._spoiled(super().follow(problem, plan, rates, seconds=seconds), problem)

    def _strike(self, process: SolverProcess) -> None:
        """Stops the process before it gets the order, for ever or until it is killed."""
        if self.fault not in ("killed", "stopped"):
            return
        process.start().result()  # in place of one that has ended
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGSTOP)
        if self.fault == "killed":
            Timer(KILLED_AFTER_SECONDS, kill, [process.pid]).start()

    def _spoiled(self, answer: SolverAnswer, problem: Problem) -> SolverAnswer:
        """Returns the answer with a plan that lets one copy of a service carry everything."""
        if self.fault != "lying" or answer.plan is None:
            return answer
        first = {line.service: line for line in answer.plan.instances}
        lies = [
            replace(line, rate_per_second=problem.services[name].rate_per_second * 10) for name, line in first.items()
        ]
        return replace(answer, plan=replace(answer.plan, instances=tuple(lies)))


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def troubled(database_url: str, fault: str) -> Iterator[Simulation]:
    """A fleet whose load rises after the processes of its solver have begun to fail."""
    solver = Troubled(grace_seconds=60.0)
    try:
        with open_simulation(database_url, small(gpus=12, pricing="gpu"), RISES) as simulation:
            store = PlannerStore(simulation.database, "another", 30.0)
            budget = CycleBudget(seconds=10.0, work=WORK)
            simulation.planner = Planner(store, solver, ReportListener(simulation.database), budget)
            simulation.advance(80, CALM_TICK_SECONDS)
            solver.fault = fault
            if fault != "lying":
                solver._grace_seconds = 2.0  # a process that is stopped need not be waited for for long
            simulation.planner.budget = replace(budget, seconds=1.0)
            yield simulation
    finally:
        solver.close()


def rows(simulation: Simulation, sql: Any, **values: object) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(sql, values)))


def places(simulation: Simulation) -> set[tuple[str, str, int]]:
    """The GPUs on which nodes are to run services; a quick step may give a copy another share where it is."""
    orders = {name: node.memory.assignment for name, node in simulation.fleet.nodes.items()}
    return {(line.service, name, line.gpu) for name, order in orders.items() if order for line in order.instances}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_case_19_a_rising_load_is_served_by_what_the_greedy_adds(database_url: str, fault: str) -> None:
    with troubled(database_url, fault) as simulation:
        fleet, history = simulation.fleet, simulation.history
        before, kept = fleet.ready("shop/a"), places(simulation)

        simulation.advance(150, TICK_SECONDS)

        made = rows(simulation, MADE, method=METHOD)
        assert sum(changes["start"] for (changes,) in made) > 0
        assert not [changes for (changes,) in made if changes["stop"] or changes["move"] or changes["resize"]]
        outcomes = {row.outcome for row in rows(simulation, text("SELECT outcome FROM cycle ORDER BY id DESC LIMIT 3"))}
        assert FAULTS[fault] in outcomes
        assert fleet.ready("shop/a") > before
        assert kept <= places(simulation)
        settled = history.mark(fleet)
        simulation.advance(60, CALM_TICK_SECONDS)
        assert min(count_attained_shares(settled, history.mark(fleet)).values()) >= 0.98
