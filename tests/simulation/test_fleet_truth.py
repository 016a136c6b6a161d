"""The truth of a simulated fleet is what the judge of plans expects of it."""

from __future__ import annotations

import pytest

from simulation.fleet_truth import SimulatedResident, interpolate
from simulation.world import truth_of
from solvers.planning.judge import judge
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve
from tests.simulation.worlds import small

KEY = ("a", "fp16", "v100-16gb")


def test_curves_are_linear_between_their_points_and_flat_beyond() -> None:
    curve = ((10, 4.0), (20, 2.0))
    assert [interpolate(curve, sm) for sm in (5, 10, 15, 20, 90)] == [4, 4, 3, 2, 2]


@pytest.mark.slow
def test_every_instance_of_a_plan_is_as_fast_as_the_plan_predicts() -> None:
    truth = truth_of(small())
    plan = solve(truth.problem, SolveBudget(seconds=None, work=12))
    assert not judge(truth.problem, plan, simulate=False, keeps=keep).violations
    for instance in plan.instances:
        beside = [
            SimulatedResident(
                truth.problem.profiles[other.service.rpartition("/")[2], "fp16", "v100-16gb"].demand, other.sm_percent
            )
            for other in plan.instances
            if other.place == instance.place and other is not instance
        ]
        key = (instance.service.rpartition("/")[2], "fp16", "v100-16gb")
        assert truth.exec_ms(key, instance.batch, instance.sm_percent, beside, instance.clock_mhz) == pytest.approx(
            instance.exec_ms
        )


def test_a_lower_clock_is_slower_and_draws_less() -> None:
    truth = truth_of(small())
    resident = SimulatedResident(truth.problem.profiles[KEY].demand, 40)
    assert truth.exec_ms(KEY, 8, 40, [], 1200) > truth.exec_ms(KEY, 8, 40, [], 1530)
    assert truth.watts("v100-16gb", [(resident, 1.0)], 1200) < truth.watts("v100-16gb", [(resident, 1.0)])
    assert truth.watts("v100-16gb", []) == 40
