"""A quick step leaves out the services that would start again where a copy of them failed lately, and no others."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import timedelta

from app.control.decide.assigning import assign_plan
from app.control.decide.resting import returning_services
from app.control.domain.events import Reason
from app.control.domain.snapshot import Rest, Snapshot
from app.control.fast import CapacityNeed, StepTrigger
from app.control.fast.base import step_base
from app.control.fast.drafting import DraftedStep, draft_step
from app.control.fast.lane import FastLane
from app.control.formulate.formulate import formulate
from app.control.observe.loads.recent import RecentLoad
from app.control.solve.inline import Inline
from solvers.planning.plan import Plan
from solvers.planning.problem import Instance, Place
from tests.app.control.decide.test_choosing import EACH_GIB, GPUS, NODES, world
from tests.app.control.test_certificates import OneMoment
from tests.solvers.planning.random_problems import NOON

RATES = {"shop/a": 40.0, "shop/b": 30.0}
NEEDED = {"shop/a": 600.0, "shop/b": 500.0}  # one copy carries less
PLACES = [(node, gpu) for node in NODES for gpu in range(GPUS)]
A, B = PLACES[:2]


def running() -> Snapshot:
    now = world(RATES)
    lines = [
        Instance(f"i-{name}", name, *place, "v", 1, 0.0, 40, EACH_GIB, 1500.0, RATES[name])
        for name, place in (("shop/a", A), ("shop/b", B))
    ]
    return replace(now, in_force=assign_plan(now, formulate(now), Plan(tuple(lines))), target=1)


def drafted(failed: dict[str, tuple[Place, ...]], services: Collection[str] = tuple(RATES)) -> DraftedStep | None:
    snapshot = replace(running(), failed_places=failed)
    needs = [CapacityNeed(name, StepTrigger.LOAD_ROSE, NEEDED[name], NEEDED[name], "load rose") for name in services]
    base = step_base(snapshot, formulate(snapshot))
    return draft_step(base, needs, Inline(), snapshot.at + timedelta(seconds=1), None)


def test_only_the_service_that_would_start_where_it_failed_is_left_out() -> None:
    both = drafted({})
    assert both and both.left_out == () and set(both.decision.services) == set(RATES)
    step = drafted({"shop/a": tuple(PLACES)})
    assert step and step.left_out == ("shop/a",) and set(step.decision.services) == {"shop/b"}
    assert "shop/a" not in step.quick.rates, "a later step still finds its need"
    snapshot = replace(running(), failed_places={"shop/a": tuple(PLACES)})
    assert returning_services(snapshot, step.decision.desired) == set()


def test_a_service_that_failed_where_the_step_starts_nothing_of_it_is_in_the_step() -> None:
    step = drafted({"shop/a": (("another-node", 0),)})
    assert step and step.left_out == () and set(step.decision.services) == set(RATES)


def test_no_step_is_made_if_every_service_would_start_where_it_failed() -> None:
    assert drafted({"shop/a": tuple(PLACES), "shop/b": tuple(PLACES)}) is None
    assert drafted({"shop/a": tuple(PLACES)}, ["shop/a"]) is None


def swapping() -> Snapshot:
    """A rollout in which each service waits for the GPU of the other: nothing of the plan in force has begun."""
    runs = running()
    lines = [
        Instance(f"n-{name}", name, *place, "v", 1, 0.0, 100, EACH_GIB, 1500.0, RATES[name])
        for name, place in (("shop/a", B), ("shop/b", A))
    ]
    plan = assign_plan(runs, formulate(runs), Plan(tuple(lines)))
    full = [
        Instance(f"i-{name}", name, *place, "v", 1, 0.0, 60, EACH_GIB, 1500.0, RATES[name])
        for name, place in (("shop/a", A), ("shop/b", B))
    ]
    assigned = assign_plan(runs, formulate(runs), Plan(tuple(full)))
    return replace(runs, in_force=plan, assigned=assigned, target=2, is_rolling=True)


def test_in_a_rollout_whose_copies_wait_a_step_changes_what_runs() -> None:
    snapshot = swapping()
    needs = [CapacityNeed("shop/b", StepTrigger.LOAD_ROSE, NEEDED["shop/b"], NEEDED["shop/b"], "load rose")]
    step = draft_step(step_base(snapshot, formulate(snapshot)), needs, Inline(), snapshot.at, None)
    assert step and "shop/b" in step.quick.rungs
    kept = {line.id for wanted in step.decision.desired.values() for line in wanted.instances}
    assert {line.id for wanted in snapshot.assignments.values() for line in wanted.instances} <= kept
    assert step.decision.services == ("shop/a", "shop/b"), "the move of shop/a is given up, which its tenant may see"


def test_a_base_knows_by_itself_when_the_rollout_has_reached_its_plan() -> None:
    snapshot = swapping()
    base = step_base(replace(snapshot, assigned=None), formulate(snapshot))
    amid = base.amid_rollout(snapshot.assigned)
    assert amid.snapshot == snapshot and amid.plan is base.plan
    assert amid.amid_rollout(dict(snapshot.in_force)).snapshot == base.snapshot
    assert base.amid_rollout(None) is base


def test_the_fast_lane_serves_the_others_at_once_and_calls_for_a_cycle() -> None:
    places, until = tuple(PLACES), NOON + timedelta(minutes=1)
    snapshot = replace(running(), failed_places={"shop/a": places}, resting={"shop/a": Rest(until, places)})
    store = OneMoment(snapshot)
    store.epoch = 1
    lane = FastLane(store, Inline(), step_base(snapshot, formulate(snapshot)))
    readings = {name: RecentLoad(rate) for name, rate in NEEDED.items()}
    result = lane.answer(readings, snapshot.at + timedelta(seconds=1), lambda: None)
    assert [decision.services for decision in store.decisions] == [("shop/b",)]
    assert result.generation and result.calls_for == Reason.LOAD_ROSE
