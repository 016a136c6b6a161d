"""Requests that are played on a fleet of language models, under a caller's plans and under the control plane."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from lab.rag.replayed import ReplayOrder, replay_online, replay_planned
from simulation.serving.arrivals import PlayedRequests
from simulation.world import read_documents, truth_of
from solvers.planning.plan import Plan
from solvers.planning.solve import SolveBudget, solve
from tests.simulation.worlds import chat, gpu_type, node, policy
from tests.support.postgres import DatabaseServer

WORLD = read_documents([gpu_type(), policy(pricing="gpu"), node("node-0"), node("node-1"), *chat()])


def order(seconds: float) -> ReplayOrder:
    """Returns two requests a second; every fourth fills the context, which no copy can hold."""
    times = np.arange(0.05, seconds, 0.5)
    inputs = np.where(np.arange(len(times)) % 4 == 0, 4096, 50)
    return ReplayOrder({"shop/chat": PlayedRequests(times, inputs, np.full(len(times), 20))}, seconds, 1, work=2)


def test_requests_of_a_plan_that_never_changes_cost_what_its_gpus_do() -> None:
    truth = truth_of(WORLD)
    plan = solve(truth.problem, SolveBudget(seconds=None, work=2))
    plans = iter([plan])
    found = replay_planned(truth, order(600.0), lambda rates: next(plans, None))["shop/chat"]
    assert (found.ttft, found.tpot, found.both) == (0.75, 0.75, 0.75)
    assert found.requests == pytest.approx(600, abs=4)  # of five minutes: those before do not count
    gpus = sum(line.degree for line in plan.instances)
    assert found.cost_per_hour == pytest.approx(gpus * truth.problem.nodes["node-0"].price_per_hour)


def test_a_caller_sees_the_rates_of_the_last_minute_and_an_empty_plan_serves_nothing() -> None:
    truth = truth_of(WORLD)
    plan, seen = solve(truth.problem, SolveBudget(seconds=None, work=2)), list[Mapping[str, float]]()

    def make_plan(rates: Mapping[str, float]) -> Plan:
        seen.append(rates)
        return plan if len(seen) < 16 else Plan(())

    found = replay_planned(truth, order(900.0), make_plan, 5.0)["shop/chat"]
    assert seen[0] == {}
    assert [rates["shop/chat"] for rates in seen[2:]] == pytest.approx([2.0] * (len(seen) - 2), abs=0.05)
    assert found.both == pytest.approx(0.75 * (450 - 300) / 600, abs=0.02)


@pytest.mark.slow
def test_the_control_plane_serves_the_same_requests(postgres: DatabaseServer) -> None:
    url = postgres.create()
    try:
        found = replay_online(url, WORLD, order(420.0))["shop/chat"]
    finally:
        postgres.drop(url)
    assert (found.ttft, found.tpot, found.both) == pytest.approx((0.75, 0.75, 0.75), abs=0.02)
    assert found.cost_per_hour > 0
