"""What a plan leaves to one service is what a plan without that service leaves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solvers.planning import explain
from solvers.planning.explain.ground import remove_service
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Demand, Instance, Job, JobProfile, Limit, Node, PlacedJob
from solvers.planning.solve import SolveBudget, solve
from tests.solvers.planning.explain.test_explain import BIG, a, world
from tests.solvers.planning.random_problems import random_problem

QUICK = SolveBudget(seconds=None, work=0)
ARRAYS = ("free_sm", "free_gib", "free_w", "pressure", "clients", "closed")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_a_service_that_leaves_leaves_nothing_behind(seed: int) -> None:
    problem = replace(random_problem(seed), state=None)
    plan = solve(problem, QUICK)
    rooms = FleetRooms(problem, plan.instances, plan.jobs)
    for name in {instance.service for instance in plan.instances}:
        rest, _ = remove_service(rooms, name)
        stay = [instance for instance in plan.instances if instance.service != name]
        fresh = FleetRooms(problem, stay, plan.jobs)
        for array in ARRAYS:
            assert getattr(rest, array) == pytest.approx(getattr(fresh, array)), array
        assert set(rest.gpus) == set(fresh.gpus)
        for other in problem.services.values():
            assert (rest.admits(other, problem.policy) == fresh.admits(other, problem.policy)).all()
        assert rest.commons.cpu_cores == pytest.approx(fresh.commons.cpu_cores)
        assert rest.commons.host_memory_gib == pytest.approx(fresh.commons.host_memory_gib)
        assert rest.commons.drawn_w == pytest.approx(fresh.commons.drawn_w)
        for tenant in {service.tenant for service in problem.services.values()}:
            assert rest.commons.gpus_taken[tenant] == pytest.approx(fresh.commons.gpus_taken[tenant])
            assert rest.commons.price_taken[tenant] == pytest.approx(fresh.commons.price_taken[tenant])
    assert rooms.free_sm == pytest.approx(FleetRooms(problem, plan.instances, plan.jobs).free_sm)


def test_a_job_on_several_gpus_takes_the_cores_of_its_node_once() -> None:
    profile = JobProfile(((100, 1.0),), 10.0, Demand(cpu_cores=8))
    problem = world(
        nodes={"n1": Node("n1", "big", (0, 1, 2), 16, 64, 2.0, "owned")},
        jobs={"lab/j": Job("lab/j", "lab", "training", 1e6, {"big": profile}, gpus=2)},
    )
    job = PlacedJob("lab/j", "n1", 0, 100, 10.0, 1.0, gpus=(0, 1))
    assert FleetRooms(problem, (), (job,)).commons.cpu_cores.tolist() == [8.0]
    (left,) = explain.explained(problem, Plan((), (job,), (Unserved("shop/a", 50.0),)))
    assert left.reason.startswith("there is room for it next to other services")


def test_a_gpu_of_a_dedicated_service_counts_once_in_its_tenants_limit() -> None:
    problem = a(BIG, is_dedicated=True)
    both = [Instance(f"i{n}", "shop/a", "n1", 0, "v", 1, 0.0, 40, 2.0, 1000, 10.0, 10.0) for n in range(2)]
    commons = FleetRooms(problem, both, ()).commons
    assert commons.left_of("shop", Limit(2.0, 4.0)) == (1.0, 2.0)


def test_watts_are_free_by_the_clock_at_which_instances_run() -> None:
    kind = replace(BIG.gpu_types["big"], clocks_mhz=(500.0, 1000.0))
    problem = world(gpu_types={**BIG.gpu_types, "big": kind})
    fast = Instance("i", "shop/a", "n1", 0, "v", 1, 0.0, 100, 2.0, 1000, 10.0, 8.0)
    rooms = [FleetRooms(problem, [each], ()) for each in (fast, replace(fast, clock_mhz=500, exec_ms=16.0))]
    full, half = (float(each.free_w[0]) for each in rooms)
    assert full == pytest.approx(kind.max_w - kind.idle_w - 110)
    assert half == pytest.approx(kind.max_w - kind.idle_w - 55)
