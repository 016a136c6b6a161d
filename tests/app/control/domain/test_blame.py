"""A declaration on which the solver fails every time is named, and disturbs nothing that runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import text

from app.control.decide.last_question import CycleResult, LastQuestion
from app.control.domain.blame import describe_suspects, suspects
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.events import Reason
from app.control.domain.ports import Meanwhile, just_wait
from app.control.domain.snapshot import DeclaredObject
from app.control.solve.inline import Inline
from app.manifests.model import JSON, Key, Kind
from app.manifests.offline import DeclaredFiles
from simulation.run import Simulation, open_simulation
from simulation.world import put, read_documents
from solvers.planning.problem import Problem
from tests.simulation.worlds import CALM_TICK_SECONDS, gpu_type, model, node, policy, profile, service, withdraw

KNOWN = (DeclaredObject("Service", "shop", "a", {"rate": 1}), DeclaredObject("Model", "", "m", {}))


class Dies(Inline):
    """A solver that ends each time that it is asked about one service."""

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        if "shop/b" in problem.services:
            counted: Mapping[str, JSON] = {"seed": seed, "work": work}
            return SolverAnswer(SolveOutcome.CRASHED, None, "the solver's process ended with SIGSEGV", counted)
        return super().solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile)

    def add(self, problem: Problem, *, seconds: float) -> SolverAnswer:
        """Ends as well: else the second method would serve it."""
        return SolverAnswer(SolveOutcome.CRASHED, None, "the solver's process ended with SIGSEGV", {"kind": "add"})


def world(*services: dict[str, Any]) -> DeclaredFiles:
    models = [manifest for name in ("a", "b") for manifest in (model(name), profile(name))]
    return read_documents([gpu_type(), policy(), node("node-0"), *models, *services])


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda c: list(c.execute(text(sql))))


@pytest.mark.slow
def test_a_service_that_crashes_the_solver_is_named_and_the_last_plan_stays_in_force_until_it_is_gone(
    database_url: str,
) -> None:
    with open_simulation(database_url, world(service("a", 200.0))) as simulation:
        simulation.planner.solver = Dies()
        simulation.advance(60, CALM_TICK_SECONDS)
        before, ready = rows(simulation, "SELECT max(generation) FROM plan"), simulation.fleet.ready("shop/a")
        assert ready >= 1
        put(simulation.database, world(service("a", 200.0), service("b", 50.0)))
        simulation.advance(70, CALM_TICK_SECONDS)
        message = "the solver's process ended with SIGSEGV; declared since it last answered: Service shop/b"
        assert {row for (row,) in rows(simulation, "SELECT message FROM event WHERE reason = 'solver_crashed'")} == {
            message
        }
        conditions = rows(simulation, "SELECT status -> 'conditions' FROM object WHERE kind = 'Service' AND name = 'b'")
        (planned,) = [condition for condition in conditions[0][0] if condition["type"] == "Planned"]
        assert planned["status"] == "False"
        neutral = f"{Reason.SOLVER_CRASHED.sentence.rstrip('.')}; declared since it last answered: Service shop/b"
        assert neutral in planned["message"]
        assert simulation.fleet.ready("shop/a") == ready
        assert rows(simulation, "SELECT max(generation) FROM plan") == before
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "b"))
        simulation.advance(35)
        assert simulation.last is not None
        assert simulation.last.outcome is not SolveOutcome.CRASHED


def test_what_is_new_or_changed_is_suspected_and_nothing_where_no_answer_is_known() -> None:
    changed, new = DeclaredObject("Service", "shop", "a", {"rate": 2}), DeclaredObject("Profile", "", "p", {})
    assert suspects(KNOWN, (changed, KNOWN[1], new)) == (changed, new)
    assert suspects(KNOWN, KNOWN[:1]) == (), "what is gone can hardly be the cause"
    assert suspects((), KNOWN) == ()


def test_case_26_the_tenant_of_a_suspect_reads_its_own_names_and_a_neutral_sentence() -> None:
    found = (
        DeclaredObject("Service", "shop", "a", {}),
        DeclaredObject("Service", "lab", "secret", {}),
        DeclaredObject("Profile", "", "lab-profile", {}),
    )
    message = "the judge refuses the plan: lab/secret: memory_fits"
    result = CycleResult(
        SolveOutcome.WRONG, LastQuestion(), message=message, why=Reason.SOLVER_WRONG, suspects=found
    )  # fmt: skip
    assert result.blamed == {
        "shop/a": "The judge rejected the solver's plan; the last plan stays in force; "
        "declared since it last answered: Service shop/a",
        "lab/secret": "The judge rejected the solver's plan; the last plan stays in force; "
        "declared since it last answered: Service lab/secret",
    }


def test_few_are_named_of_many() -> None:
    many = tuple(DeclaredObject("Service", "shop", f"s{number}", {}) for number in range(7))
    assert describe_suspects(many) == (
        "declared since it last answered: Service shop/s0, Service shop/s1, Service shop/s2, Service shop/s3, "
        "Service shop/s4 and 2 more"
    )
    assert describe_suspects(()) == ""
