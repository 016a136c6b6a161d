"""Cycles whose solver fails while load rises: what is missing is added, nothing moves, and the record says why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import text

from app.control.answer.explain.plan import describe_plan
from app.control.answer.replay import record_of, replay
from app.control.cycle import CycleBudget
from app.control.domain.decision import SolveOutcome
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.solve.inline import Inline
from simulation.run import WORK, Simulation, open_simulation
from simulation.shapes import spike
from solvers.hetsev.fleet import METHOD
from tests.simulation.chaos import Failing
from tests.simulation.worlds import CALM_TICK_SECONDS, small

pytestmark = pytest.mark.slow

FAILURES = (SolveOutcome.OUT_OF_TIME, SolveOutcome.CRASHED, SolveOutcome.WRONG, SolveOutcome.COMPILING)
RISES = {"shop/a": spike(90.0, hold_seconds=3600.0)}
MANY = 1000
EXPECTED = "info"  # each machine compiles once
BY_GREEDY = f"method = '{METHOD.replace(chr(39), chr(39) * 2)}'"


@contextmanager
def failing(database_url: str, outcome: SolveOutcome) -> Iterator[Simulation]:
    """A fleet whose load rises after its solver has begun to fail."""
    with open_simulation(database_url, small(gpus=12), RISES) as simulation:
        solver = Failing()
        store = PlannerStore(simulation.database, "another", 30.0)
        simulation.planner = Planner(store, solver, ReportListener(simulation.database), CycleBudget(work=WORK))
        simulation.advance(80, CALM_TICK_SECONDS)
        solver.outcomes = [outcome] * MANY
        yield simulation


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


@pytest.mark.parametrize("outcome", FAILURES)
def test_what_is_missing_is_added_and_nothing_moves(database_url: str, outcome: SolveOutcome) -> None:
    with failing(database_url, outcome) as simulation:
        simulation.advance(120)

        added = rows(simulation, f"SELECT changes FROM plan WHERE {BY_GREEDY}")
        assert sum(changes["start"] for (changes,) in added) > 0
        assert [changes for (changes,) in added if changes["stop"] or changes["move"] or changes["resize"]] == []
        newest = rows(simulation, "SELECT max(generation) FROM plan")[0][0]
        record = simulation.database.read(lambda c: record_of(c, newest))
        assert record is not None
        assert record.plan is not None
        assert record.plan.unserved == ()
        told = rows(simulation, "SELECT message, severity FROM event WHERE reason = 'fallback_planned'")
        assert told
        assert {severity for _, severity in told} == {EXPECTED if outcome is SolveOutcome.COMPILING else "warning"}
        assert "HetSev's greedy" in told[0][0]


def test_the_plan_says_how_it_was_made_and_can_be_replayed(database_url: str) -> None:
    with failing(database_url, SolveOutcome.CRASHED) as simulation:
        simulation.advance(120)

        generation = rows(simulation, f"SELECT min(generation) FROM plan WHERE {BY_GREEDY}")[0][0]
        record = simulation.database.read(lambda c: record_of(c, generation))
        assert record is not None
        assert record.plan is not None
        assert record.plan.certificate is not None
        assert record.plan.certificate.method == METHOD
        assert replay(record, Inline()).difference == ""
        row = {"generation": generation, "lane": "full", "state": "done", "message": "the joint solver crashed"}
        plan = {
            "certificate": {
                "cost": 1.0,
                "bound": None,
                "resourceCost": 1.0,
                "unservedCost": 0.0,
                "method": METHOD,
                "noBoundReason": "none",
            }
        }
        assert METHOD in " ".join(describe_plan(row, plan, ()))


def test_a_first_plan_does_not_wait_for_a_solver_that_compiles_which_is_asked_again_at_once(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=12)) as simulation:
        solver = Failing()
        solver.outcomes = [SolveOutcome.COMPILING] * MANY
        store = PlannerStore(simulation.database, "another", 30.0)
        simulation.planner = Planner(store, solver, ReportListener(simulation.database), CycleBudget(work=WORK))
        simulation.advance(60, CALM_TICK_SECONDS)
        assert rows(simulation, f"SELECT count(*) FROM plan WHERE NOT {BY_GREEDY}") == [(0,)]
        assert all(simulation.fleet.ready(name) for name in simulation.fleet.declared)

        solver.outcomes, solver.spoil = [], lambda plan: plan
        simulation.advance(45, CALM_TICK_SECONDS)

        assert solver.spoil is None, "the solver was asked again"


def test_once_the_solver_answers_again_it_plans_from_what_was_added(database_url: str) -> None:
    with failing(database_url, SolveOutcome.OUT_OF_TIME) as simulation:
        simulation.advance(120)
        solver = simulation.planner.solver
        assert isinstance(solver, Failing)
        solver.outcomes = []
        added = rows(simulation, f"SELECT max(generation) FROM plan WHERE {BY_GREEDY}")[0][0]

        simulation.advance(400, CALM_TICK_SECONDS)

        cycles = rows(simulation, "SELECT outcome FROM cycle ORDER BY id DESC LIMIT 1")
        assert cycles[0][0] in ("solved", "unchanged")
        assert rows(simulation, f"SELECT max(generation) FROM plan WHERE {BY_GREEDY}")[0][0] == added
