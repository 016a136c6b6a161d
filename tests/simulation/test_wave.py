"""A day's slow wave on four GPUs: the cost of changes, against the cheapest course of a day known beforehand."""

from __future__ import annotations

import math

import pytest

from app.manifests.offline import DeclaredFiles
from simulation.fleet.history import AssignmentChange, History, count_attained_shares
from simulation.run import open_simulation
from simulation.world import read_documents, truth_of
from solvers.latency import max_rate
from tests.simulation.optimum import Day, PlanSequence, ServiceShape, optimum
from tests.simulation.worlds import all_noisy, gpu_type, model, node, policy, service, steps
from tests.support.soak import SOAK

STEPS = 24 if SOAK else 8
STEP_SECONDS = 3600.0 if SOAK else 300.0
TICK = 5.0
PRICE, MOVE_PRICE, SLO_MS = 1.2, 0.05, 120.0
SM = {"a": 50, "b": 30, "c": 20}  # the one share that each service was measured at
EXEC_MS = {"a": 20.0, "b": 25.0, "c": 30.0}  # of a batch of 8
MARGIN, UTILIZATION = 1.05, 0.8
MOST = 2.6  # instances' worth of load at the highest
LEAST = 0.5


def carries(name: str) -> float:
    """The load that one instance carries, by the contract."""
    most, _ = max_rate(8, EXEC_MS[name] * MARGIN, SLO_MS, 98)
    return min(most, UTILIZATION * 8 * 1000 / EXEC_MS[name])


def wave(name: str) -> list[float]:
    """Rates of a day; the services peak at different hours."""
    phase = {"a": 0.0, "b": 1 / 3, "c": 2 / 3}[name]
    turns = (0.5 - 0.5 * math.cos(2 * math.pi * (hour / STEPS + phase)) for hour in range(STEPS))
    return [carries(name) * (LEAST + (MOST - LEAST) * turn) for turn in turns]


def world() -> DeclaredFiles:
    documents = [gpu_type(price=PRICE), node("node-0"), node("node-1")]
    documents.append(policy(movePrice=MOVE_PRICE, pricing="share", horizonMinutes=STEP_SECONDS / 60))
    for name in SM:
        latency = {"8": {str(SM[name]): EXEC_MS[name]}}
        spec = {"model": name, "variant": "fp16", "gpuType": "v100-16gb", "latencyMs": latency, "memoryGib": {"8": 1.9}}
        profile = {"apiVersion": "gpuwright/v1", "kind": "Profile", "metadata": {"name": name}, "spec": spec}
        documents += [model(name), profile, service(name, min(wave(name)), slo_ms=SLO_MS)]
    return read_documents(documents)


def cheapest() -> PlanSequence:
    shapes = {name: ServiceShape(SM[name], carries(name)) for name in SM}
    rates = [dict(zip(SM, at, strict=True)) for at in zip(*(wave(name) for name in SM), strict=True)]
    return optimum(Day(4, PRICE, MOVE_PRICE, STEP_SECONDS / 3600, shapes, rates, by_share=True))


def churn(changed: list[AssignmentChange]) -> float:
    """The price of the copies that were started, wherever they came from."""
    started = [change for change in changed if change.what in ("start", "move", "resize")]
    return sum(MOVE_PRICE * PRICE * SM[change.owner.removeprefix("shop/")] / 100 for change in started)


@pytest.mark.slow
def test_a_day_costs_no_more_than_half_again_the_churn_of_the_cheapest_course(database_url: str) -> None:
    declared = world()
    least = {name: min(wave(name)) for name in SM}
    shapes = {f"shop/{name}": steps([rate / least[name] for rate in wave(name)], STEP_SECONDS) for name in SM}
    assert 1 + truth_of(declared).problem.policy.exec_margin == MARGIN
    with open_simulation(database_url, declared, all_noisy(shapes, 0.01)) as simulation:
        history: History = simulation.history
        simulation.advance(STEP_SECONDS, TICK)  # starts in the first hour are free, in both
        began, mark = simulation.clock.seconds, history.mark(simulation.fleet)
        simulation.advance(STEP_SECONDS * (STEPS - 1), TICK)
        best = cheapest()
        assert best.churn > 0
        assert churn(history.since(began)) <= 1.5 * best.churn
        assert min(count_attained_shares(mark, history.mark(simulation.fleet)).values()) >= 0.98
