"""Plans of small fleets are checked against CP-SAT at rest; what it finds is kept beside the plan."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from time import sleep
from typing import Any

import pytest
from sqlalchemy import text

from app.api.plans import plan_wire
from app.control.answer.cross_checks import CheckPlan, RestingProcess, check_newest
from app.store.plans import plan_reads
from app.store.plans.cross_checks import PlanCheck
from simulation.run import Simulation, open_simulation
from solvers.crosscheck import cross_check
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from solvers.planning.solve import SolveBudget, find
from tests.simulation.worlds import small
from tests.solvers.crosscheck.tiny import tiny_problem
from tests.support.patience import until

pytestmark = pytest.mark.slow

PLANNED_SECONDS, TICK_SECONDS = 40.0, 5.0


def planned(problem: Problem) -> Plan:
    return find(problem, SolveBudget(work=5), alone=True).plan


def raise_bound(order: CheckPlan) -> CheckPlan:
    """Returns the order with a certificate that claims more than is true."""
    assert order.plan.certificate
    bound = 1.01 * order.plan.certificate.cost.total
    return replace(order, plan=replace(order.plan, certificate=replace(order.plan.certificate, bound=bound)))


def test_a_cheapest_plan_has_the_same_cost_and_one_with_more_gpus_is_dearer() -> None:
    problem = tiny_problem(0)
    found = cross_check(problem)
    assert found.plan
    same = CheckPlan(problem, found.plan).answered()
    assert (same.outcome, same.message, same.cost) == ("same", "checked against CP-SAT: the same cost", found.cost)
    nothing = CheckPlan(problem, Plan(())).answered()
    assert nothing.outcome == "dearer"
    assert "% less" in nothing.message
    assert nothing.bound == found.bound


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_of_the_joint_planner_is_contradicted(seed: int) -> None:
    problem = tiny_problem(seed)
    assert CheckPlan(problem, planned(problem)).answered().outcome in ("same", "dearer", "unproved")


def test_a_bound_above_what_a_plan_costs_is_contradicted() -> None:
    problem = tiny_problem(0)
    check = raise_bound(CheckPlan(problem, planned(problem))).answered()
    assert check.outcome == "contradiction"
    assert check.message.startswith("contradicted by CP-SAT: its bound is above")


def test_a_process_of_its_own_checks_and_ends() -> None:
    problem = tiny_problem(0)
    resting = RestingProcess(cores=1)
    check = resting.ask(CheckPlan(problem, planned(problem)))
    assert check
    assert check.outcome in ("same", "dearer")
    resting.close()


@dataclass(frozen=True, slots=True)
class LongCheck(CheckPlan):
    """A check that does not end, and says when it has begun."""

    begun: Path

    def answered(self) -> PlanCheck:
        self.begun.touch()
        sleep(600.0)
        raise AssertionError


def test_a_planner_that_ends_leaves_the_plan_to_the_next_one(database_url: str, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    with open_simulation(database_url, small(gpus=4, rates=(60.0, 50.0))) as simulation:
        simulation.advance(PLANNED_SECONDS, TICK_SECONDS)
        resting = RestingProcess(cores=1)

        def ask(order: CheckPlan) -> PlanCheck | None:
            with ThreadPoolExecutor(1) as pool:
                asked = pool.submit(resting.ask, LongCheck(order.problem, order.plan, begun))
                until(begun.exists, "the check has begun")
                resting.close()
                return asked.result()

        assert check_newest(simulation.planner.store, ask) is None
        assert check_newest(simulation.planner.store, resting.ask) is None
        assert stored(simulation)[0] is None
        assert check_newest(simulation.planner.store, CheckPlan.answered)


def stored(simulation: Simulation) -> tuple[Any, int]:
    generation = simulation.planner.store.view().plan.generation  # type: ignore[union-attr]
    head = simulation.database.read(lambda c: plan_reads.read_head(c, generation))
    assert head
    return head["cross_check"], generation


def test_the_plan_in_force_is_checked_once_and_read_by_rest_and_sql(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4, rates=(60.0, 50.0))) as simulation:
        store = simulation.planner.store
        assert check_newest(store, CheckPlan.answered) is None  # nobody leads, and no plan is there
        simulation.advance(PLANNED_SECONDS, TICK_SECONDS)
        check = check_newest(store, CheckPlan.answered)
        assert check
        assert check.outcome == "same"
        kept, generation = stored(simulation)
        assert {name: kept[name] for name in ("outcome", "message", "cost", "bound")} == {
            "outcome": check.outcome, "message": check.message, "cost": check.cost, "bound": check.bound,
        }  # fmt: skip
        assert check_newest(store, CheckPlan.answered) is None
        head = simulation.database.read(lambda c: plan_reads.read_head(c, generation))
        assert head
        assert plan_wire.head(head)["crossCheck"] == kept
        assert "crossCheck" not in plan_wire.head(head, tenant="shop")
        (row,) = simulation.database.read(lambda c: list(c.execute(text("SELECT * FROM report.cross_checks"))))
        assert (row.generation, row.outcome, row.message) == (generation, "same", check.message)


def test_a_contradiction_is_an_alarm(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=4, rates=(60.0, 50.0))) as simulation:
        simulation.advance(PLANNED_SECONDS, TICK_SECONDS)

        def ask(order: CheckPlan) -> PlanCheck:
            return raise_bound(order).answered()

        assert check_newest(simulation.planner.store, ask)
        rows = simulation.database.read(
            lambda c: list(c.execute(text("SELECT * FROM event WHERE reason = 'plan_contradicted'")))
        )
        assert [(row.severity, row.generation) for row in rows] == [("alarm", stored(simulation)[1])]


def test_larger_fleets_are_not_checked(database_url: str) -> None:
    with open_simulation(database_url, small(gpus=10, rates=(60.0,))) as simulation:
        simulation.advance(PLANNED_SECONDS, TICK_SECONDS)
        assert check_newest(simulation.planner.store, CheckPlan.answered) is None
