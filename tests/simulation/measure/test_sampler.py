"""Samples from other processes are those of the first, and a process that dies is reported."""

from __future__ import annotations

import os
import signal

import pytest

from simulation.measure.fresh import search_fresh
from simulation.measure.sampler import FreshPlans, FreshSampler, SampleOrder, compare
from solvers.planning.plan import Plan
from solvers.planning.problem import Problem
from tests.simulation.measure.test_fresh import PROBLEM

pytestmark = pytest.mark.slow

EMPTY = Plan(())


def orders() -> list[SampleOrder]:
    rates = {name: service.rate_per_second for name, service in PROBLEM.services.items()}
    more = {name: 1.5 * rate for name, rate in rates.items()}
    return [
        SampleOrder(300.0, PROBLEM, more, EMPTY, ()),
        SampleOrder(900.0, PROBLEM.change_rates(more), rates, EMPTY, ()),
    ]


def searched(problem: Problem) -> Plan:
    return search_fresh(problem, 1, 0)


@pytest.mark.parametrize("processes", [1, 2])
def test_samples_are_those_of_the_same_searches_in_this_process(processes: int) -> None:
    with FreshSampler(1, 0, processes) as sampler:
        for order in orders():
            sampler.order(order)
        found = sampler.finish()
    assert found == list(
        compare(orders(), [FreshPlans(searched(order.problem), searched(order.to_come)) for order in orders()])
    )
    assert [moment.at for moment in found] == [300.0, 900.0]
    assert found[1].fresh == found[0].fresh_in_hindsight


def test_a_process_that_dies_is_reported_and_leaves_nothing_behind() -> None:
    with FreshSampler(10_000, 0, 2) as sampler:
        sampler.order(orders()[0])
        sampler.order(orders()[1])
        pid = sampler._workers[1].process.pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(RuntimeError, match="a process that searches fresh plans failed"):
            sampler.finish()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
