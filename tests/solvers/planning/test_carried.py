"""Instances that carry nothing leave a plan, and those that stay carry what they can without them."""

from __future__ import annotations

from dataclasses import replace

from solvers.planning.carried import carry
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance, Policy
from tests.solvers.hetsev.fleet.fleets import fleet


def test_where_shares_are_paid_an_instance_is_slower_without_a_neighbour_that_leaves() -> None:
    problem = fleet(rate=5000.0)
    lonely = replace(problem.services["shop/b"], min_instances=2)
    policy = Policy(pricing="share", share_pressure=1.0)
    problem = replace(problem, services={**problem.services, "shop/b": lonely}, policy=policy)
    seats = [
        Instance(f"{name}/1", name, "fast-0", 0, "v", 8, 0.0, 40, 3.0, 1500.0, 0.0) for name in ("shop/a", "shop/b")
    ]
    lines, rests = carry(problem, seats)
    assert [line.service for line in lines] == ["shop/a"]
    assert rests["shop/b"] == lonely.rate_per_second
    unserved = tuple(Unserved(name, rate, "no room") for name, rate in rests.items())
    verdict = judge(problem, Plan(tuple(lines), (), unserved))
    assert verdict.is_right, verdict.violations
