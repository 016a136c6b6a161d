"""From a board to instances: where shares are priced, what leaves slows what stays, and the rates allow for it."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import numpy as np
import pytest

from solvers.planning.drafting.drafts import drafts, prepare
from solvers.planning.judge import judge
from solvers.planning.plan import Plan
from solvers.planning.problem import Limit, Policy
from solvers.planning.search.capacity import best_rate
from solvers.planning.search.realise import PlacedInstances, instances, serves_all
from solvers.planning.search.tables import tables
from solvers.planning.search.workshop import workshop
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.random_problems import random_problem
from tests.solvers.planning.test_workers import fleet


def test_who_stays_beside_a_service_with_too_few_instances_carries_less() -> None:
    problem = replace(fleet(0), policy=Policy(pricing="share", share_pressure=1.0))
    names = sorted(problem.services)[:2]
    services = {name: problem.services[name] for name in names}
    services[names[0]] = replace(services[names[0]], min_instances=2)
    services[names[1]] = replace(services[names[1]], rate_per_second=1e4)
    t = tables(replace(problem, services=services))
    offers = [int(np.flatnonzero(t.offer_service == service)[0]) for service in range(2)]
    shop = workshop(t, 1, (0.0,))
    column = shop.column(0)._replace(
        offers=np.array(offers), sms=np.array([50, 50]), batches=np.array([0, 0]), caps=np.zeros(2)
    )
    seat = column.offers
    beside = float(t.pressure[t.offer_profile[seat[0]], 50])
    cap, batch = best_rate(shop.w, int(seat[1]), 50, beside, 1.0, 16.0)
    placed = PlacedInstances(
        np.zeros(2, dtype=np.int64), seat, column.sms, np.array([0, batch]), np.array([1.0, cap]), np.ones(2)
    )
    found, unserved = instances(t, placed)
    assert [instance.service for instance in found] == [names[1]]
    assert found[0].rate_per_second < cap
    assert judge(t.problem, Plan(tuple(found), unserved=tuple(unserved))).violations == ()


def test_what_costs_more_to_serve_than_to_leave_out_is_left_out() -> None:
    problem = fleet(0)
    dear = replace(problem, nodes={name: replace(node, price_per_hour=1e7) for name, node in problem.nodes.items()})
    plan = solve(dear, SolveBudget(seconds=0))
    assert judge(dear, plan).violations == ()
    assert plan.instances == ()
    assert plan.certificate
    assert plan.certificate.cost.total < 1e7


def test_whole_numbers_are_numbers() -> None:
    problem = fleet(0)
    policy = replace(problem.policy, pricing="share", exec_margin=0, share_pressure=1, energy_price_per_kwh=0)
    plan = solve(replace(problem, policy=policy), SolveBudget(seconds=0))
    assert judge(replace(problem, policy=policy), plan).violations == ()


def test_a_tenants_limit_leaves_less_of_a_gpu_rather_than_nothing() -> None:
    problem = fleet(0)
    plan = solve(replace(problem, limits={"shop": Limit(gpus=0.5)}), SolveBudget(seconds=0))
    assert judge(replace(problem, limits={"shop": Limit(gpus=0.5)}), plan).violations == ()
    assert sum(instance.sm_percent for instance in plan.instances) > 40


@pytest.mark.slow
def test_a_draft_serves_all_where_its_instances_leave_nothing_unserved() -> None:
    answers = set()
    for seed in range(20):
        t = tables(random_problem(seed))
        for draft in takewhile(lambda made: made.work <= 6, drafts(prepare(t), 0)):
            if draft.method:
                answers.add(serves_all(t, draft.placed))
                assert serves_all(t, draft.placed) == (not instances(t, draft.placed)[1])
    assert answers == {False, True}
