"""What a recorded plan leaves unserved without a reason is given one when it is asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from app.control.answer.explain.question import Explain
from app.control.formulate.formulate import formulate
from app.control.solve.orders import Solve, solve_order
from tests.app.control.answer.whatif.worlds import snapshot

pytestmark = pytest.mark.slow


def test_a_plan_that_was_recorded_without_reasons_gets_those_of_a_full_search() -> None:
    world = snapshot(search=30_000.0)
    plan = solve_order(Solve(formulate(world).problem, None, 2)).plan
    assert plan and plan.unserved and all(line.reason for line in plan.unserved)
    bare = replace(plan, unserved=tuple(replace(line, reason="", relaxation="") for line in plan.unserved))
    found = Explain(world, bare, "unserved", "").answered()
    assert found == {
        line.service: {"reason": line.reason, "relaxation": line.relaxation} for line in plan.unserved
    }  # fmt: skip


def test_a_service_that_is_gone_from_the_world_is_left_out() -> None:
    world = snapshot(search=30_000.0)
    plan = solve_order(Solve(formulate(world).problem, None, 2)).plan
    assert plan
    gone = replace(plan, unserved=tuple(replace(line, service="shop/gone") for line in plan.unserved))
    assert Explain(world, gone, "unserved", "").answered() == {}
