"""What people do today, as plain functions: counts that can be checked by hand."""

from __future__ import annotations

from math import ceil

import pytest

from app.control.formulate.problem import build_problem
from simulation.measure.fresh import cheapest, search_fresh
from simulation.measure.peers import SYNC_SECONDS, autoscale, choose_shape, plan_static_peak, scale_by_hpa
from tests.simulation.worlds import small

PROBLEM = build_problem(small(gpus=8))
DECLARED = {name: service.rate_per_second for name, service in PROBLEM.services.items()}


def declared(service: str, seconds: float) -> float:
    return DECLARED[service]


@pytest.mark.slow
def test_a_static_plan_for_a_steady_load_is_the_plan_for_that_load() -> None:
    found = plan_static_peak(PROBLEM, declared, [0.0, 10.0], 2, 0)
    assert found.per_hour == pytest.approx(cheapest(PROBLEM, search_fresh(PROBLEM, 2, 0), ()).per_hour)
    assert found.served_share == 1.0
    assert found.most_gpus == round(found.per_hour / 1.2)


@pytest.mark.slow
def test_a_static_plan_pays_for_the_peak_all_the_time() -> None:
    once = plan_static_peak(PROBLEM, lambda name, at: DECLARED[name] * (2 if at == 10 else 1), [0.0, 10.0, 20.0], 2, 0)
    always = plan_static_peak(PROBLEM, lambda name, at: 2 * DECLARED[name], [0.0], 2, 0)
    assert once.per_hour == always.per_hour > plan_static_peak(PROBLEM, declared, [0.0], 2, 0).per_hour


def test_a_steady_load_takes_as_many_whole_gpus_as_four_fifths_of_them_carry() -> None:
    found = scale_by_hpa(PROBLEM, declared, {}, 300.0, 900.0)
    counts = 0
    for service in PROBLEM.services.values():
        shape = choose_shape(PROBLEM, service)
        assert shape
        counts += max(service.min_instances, ceil(service.rate_per_second / (0.8 * shape.rate_per_second)))
    assert (found.most_gpus, found.served_share) == (counts, 1.0)
    assert found.per_hour == pytest.approx(1.2 * counts)


def test_copies_serve_after_their_start_and_leave_five_minutes_after_the_last_need() -> None:
    moments = autoscale(lambda at: 320.0 if 60 <= at < 120 else 80.0, 100.0, 1, 30.0, 600.0)
    copies = {moment.at: moment.copies for moment in moments}
    ready = {moment.at: moment.ready for moment in moments}
    assert (copies[45.0], copies[60.0], ready[60.0], ready[75.0], ready[90.0]) == (1, 4, 1, 1, 4)
    last = 105.0  # the last sync that saw the peak
    assert copies[last + 300 - SYNC_SECONDS] == 4
    assert copies[last + 300] == 1


def test_a_small_deviation_changes_nothing_and_a_large_one_not_all_at_once() -> None:
    assert {moment.copies for moment in autoscale(lambda at: 80.0 if at < 60 else 87.0, 100.0, 1, 0.0, 300.0)} == {1}
    grown = [moment.copies for moment in autoscale(lambda at: 80.0 if at < 15 else 4000.0, 100.0, 1, 0.0, 75.0)]
    assert grown == [1, 5, 10, 20, 40]


def test_a_service_that_no_gpu_carries_is_not_served() -> None:
    assert [(moment.copies, moment.ready) for moment in autoscale(lambda at: 5.0, 0.0, 2, 0.0, 30.0)] == [(0, 0)] * 2
