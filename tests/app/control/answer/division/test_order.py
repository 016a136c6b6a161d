"""One node after the other is emptied, so that the rest of the fleet carries everything meanwhile."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.answer.division.layouts import DivisibleNodes, MigLayout, list_layouts
from app.control.answer.division.order import order_steps
from app.control.formulate.formulate import formulate
from app.control.solve.orders import Solve, solve_order
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem, RunningState
from tests.app.control.answer.division.worlds import A100, alone, fleet

pytestmark = pytest.mark.slow
SEVENTHS: MigLayout = next(iter(list_layouts("a100", A100)))


def solve(problem: Problem) -> Plan | None:
    return solve_order(Solve(problem, 60.0, 4)).plan


def in_time() -> bool:
    return False


def running(services: int, nodes: int) -> Problem:
    """A fleet on which its plan runs."""
    problem = formulate(fleet(alone(services), nodes=nodes)).problem
    plan = solve(problem)
    assert plan is not None
    return replace(problem, state=RunningState(running=plan.instances))


def test_an_idle_node_is_divided_first_and_empties_the_next_one() -> None:
    problem = running(services=3, nodes=4)
    assert problem.state is not None
    busy = {line.node for line in problem.state.running}
    (idle,) = problem.nodes.keys() - busy
    steps = order_steps(problem, {min(busy): SEVENTHS, idle: SEVENTHS}, (), solve, in_time)
    assert [step.node for step in steps] == [idle, min(busy)]
    assert [step.drained for step in steps] == [(), ()], "all copies are on the first node's devices by then"


def test_a_copy_leaves_for_a_node_with_room_before_its_own_is_divided() -> None:
    problem = running(services=2, nodes=3)
    assert problem.state is not None
    busy = {line.node: line.service for line in problem.state.running}
    (idle,) = problem.nodes.keys() - busy.keys()
    (step,) = order_steps(problem, {min(busy): SEVENTHS}, (), solve, in_time)
    (drained,) = step.drained
    assert (drained.service, drained.copies, drained.to, step.lacking) == (busy[min(busy)], 1, (idle,), {})


def test_a_fleet_without_a_spare_gpu_says_what_nothing_would_carry() -> None:
    problem = running(services=2, nodes=2)
    first, *rest = order_steps(problem, dict.fromkeys(problem.nodes, SEVENTHS), (), solve, in_time)
    assert sum(first.lacking.values()) == pytest.approx(1.0)
    assert [step.lacking for step in rest] == [{}], "seven devices carry both"


def test_the_only_node_of_a_fleet_has_nowhere_to_go() -> None:
    problem = running(services=1, nodes=1)
    (step,) = order_steps(problem, {"n0": SEVENTHS}, (), solve, in_time)
    assert step.lacking == {"shop/s0": pytest.approx(1.0)}
    assert step.drained[0].to == ()


def test_without_time_steps_leave_open_where_copies_go() -> None:
    problem = running(services=2, nodes=3)
    steps = order_steps(problem, dict.fromkeys(problem.nodes, SEVENTHS), (), solve, lambda: True)
    assert [step.node for step in steps] == sorted(problem.nodes)
    assert sorted(step.is_known for step in steps) == [False, False, True]


def test_a_rule_that_the_nodes_left_cannot_keep_is_relaxed_as_in_a_drain() -> None:
    spread = {"minInstances": 2, "availability": {"spread": "node", "surviveNodes": 1}}
    problem = formulate(fleet({"s0": spread}, nodes=2)).problem
    plan = solve(problem)
    assert plan is not None
    problem = replace(problem, state=RunningState(running=plan.instances))
    first, second = order_steps(problem, dict.fromkeys(problem.nodes, SEVENTHS), (), solve, in_time)
    assert (first.lacking, second.lacking) == ({}, {}), "one node carries it for so long"


def test_a_busy_node_gives_its_place_to_an_empty_one_like_it() -> None:
    problem = running(services=2, nodes=3)
    assert problem.state is not None
    busy = {line.node for line in problem.state.running}
    alike = DivisibleNodes(tuple(problem.nodes), (SEVENTHS,))
    (step,) = order_steps(problem, {min(busy): SEVENTHS}, (alike,), solve, in_time)
    assert step.node not in busy
    assert (step.drained, step.lacking) == ((), {})


def test_without_a_plan_it_is_open_what_nothing_would_carry() -> None:
    problem = running(services=1, nodes=2)
    assert problem.state is not None
    node = problem.state.running[0].node
    (step,) = order_steps(problem, {node: SEVENTHS}, (), lambda problem: None, in_time)
    assert (step.is_known, step.lacking) == (False, {})
