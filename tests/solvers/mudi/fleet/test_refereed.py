"""CVXPY finds the SM% of a fleet at once; where the closed form finds others, those count, and the plan says so."""

from __future__ import annotations

import pytest

from solvers.mudi.fleet import plan
from solvers.mudi.fleet.devices import DeviceShares, MudiDevice
from solvers.mudi.fleet.refereed import referee_shares
from solvers.mudi.fleet.shapes import FittedServices, least_percents
from solvers.mudi.sharing.problem import SharedGpu, SharingResident
from solvers.planning.fleet.offers import SpareRoom
from solvers.planning.planner_draft import PlannerBudget
from solvers.planning.problem import Curve
from tests.solvers.hetsev.fleet.fleets import fleet

pytestmark = pytest.mark.slow  # each needs CVXPY, which takes half a second to import


def resident(name: str, latency_ms: Curve, pressure: Curve) -> SharingResident:
    return SharingResident(name, 1, latency_ms, 10.0, 1.0, outstanding=1.0, pressure=pressure, sensitivity=1.0)


def device(gpu: SharedGpu) -> MudiDevice:
    """Returns a GPU whose residents have what the closed form finds."""
    problem, percents = fleet(), least_percents(gpu)
    assert percents
    place = (next(iter(problem.nodes)), 0)
    fitted = FittedServices((), SpareRoom.idle(problem.type_at(place)), gpu, percents)
    return MudiDevice(problem, place, [], shares=DeviceShares((), fitted=fitted))


def test_a_plan_says_that_both_find_the_same() -> None:
    draft = plan(fleet(rate=300.0), {}, PlannerBudget())
    assert draft.method == "smallest SM% by CVXPY, the same as in closed form, jobs by the smallest slope"


def test_where_more_sm_for_one_spare_others_more_the_closed_form_finds_fewer_and_counts() -> None:
    kind = resident("a", ((10, 5.0), (50, 4.0)), ((10, 1.0), (50, 0.0)))  # with more SMs it presses less
    slow = resident("b", ((10, 12.0), (30, 9.0), (90, 4.9)), ((100, 0.0),))
    steady = resident("c", ((10, 12.0), (30, 9.0)), ((100, 0.0),))
    devices = [device(SharedGpu((kind, slow))), device(SharedGpu((steady,)))]
    assert referee_shares(devices) == "smallest SM% in closed form (CVXPY finds others on 1 of 2 GPUs)"


def test_a_fleet_without_instances_asks_no_convex_solver() -> None:
    assert referee_shares([]) == "smallest SM% in closed form"
