"""After failed steps a service waits where they failed; elsewhere it may start at once."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from app.control.decide.assigning import assign_plan
from app.control.decide.decide import hold_back
from app.control.decide.resting import resting_changes, returning_services, starting_services
from app.control.domain.desired import Desired
from app.control.domain.snapshot import Rest
from app.control.formulate.formulate import formulate
from solvers.planning.plan import Plan, Unserved
from solvers.planning.problem import Instance
from tests.app.control.decide.test_choosing import EACH_GIB, drafted, running, world
from tests.solvers.planning.random_problems import NOON

UNTIL = NOON + timedelta(minutes=1)
HERE, THERE = ("n1", 0), ("n1", 1)
RATES = {"shop/a": 40.0, "shop/b": 30.0}
WORLD = world(RATES)
Place = tuple[str, int]


def planned(**places: tuple[Place, int]) -> Plan:
    """Returns a plan with these services: a GPU and SM% for each."""
    lines = [
        Instance(f"i-{name}", f"shop/{name}", *place, "v", 1, 0.0, size, EACH_GIB, 1500.0, RATES[f"shop/{name}"])
        for name, (place, size) in places.items()
    ]
    lacks = [Unserved(name, rate) for name, rate in RATES.items() if name.rpartition("/")[2] not in places]
    return Plan(tuple(lines), unserved=tuple(lacks))


def desired(**places: tuple[Place, int]) -> Desired:
    return assign_plan(WORLD, formulate(WORLD), planned(**places))


NOW = replace(WORLD, in_force=desired(b=(THERE, 30)), target=1)


def test_a_start_where_it_failed_waits_and_one_elsewhere_does_not() -> None:
    now = replace(NOW, resting={"shop/a": Rest(UNTIL, (HERE,))})
    again, elsewhere = (drafted(now, planned(a=(place, 40), b=(THERE, 30)), "solve") for place in (HERE, THERE))
    held = hold_back(now, formulate(now), again)
    assert running(held.desired) == running(now.in_force)
    assert [(change.service, change.reason) for change in held.held_back] == [("shop/a", "step_failed_lately")]
    assert "12:01:00" in held.held_back[0].message
    assert hold_back(now, formulate(now), elsewhere).desired == elsewhere.desired


@pytest.mark.parametrize("places", [(), (HERE, ("n2", 0))])
def test_a_service_that_rests_everywhere_waits_everywhere(places: tuple[Place, ...]) -> None:
    now = replace(NOW, resting={"shop/a": Rest(UNTIL, places)})
    for place in (HERE, THERE, ("n2", 1)):
        assert resting_changes(now, desired(a=(place, 40), b=(THERE, 30))).keys() == {"shop/a"}
    assert resting_changes(now, desired(b=(HERE, 30))) == {}, "it changes nothing of the other service"


def test_on_the_gpu_of_its_rest_a_copy_may_stop_but_not_get_another_shape() -> None:
    now = replace(NOW, in_force=desired(a=(HERE, 40), b=(THERE, 30)), resting={"shop/a": Rest(UNTIL, (HERE,))})
    assert resting_changes(now, desired(a=(HERE, 60), b=(THERE, 30))).keys() == {"shop/a"}
    assert resting_changes(now, desired(a=(THERE, 40), b=(THERE, 30))) == {}


@pytest.mark.parametrize(
    ("failed", "is_back"),
    [((HERE,), True), ((THERE,), False), ((THERE, ("n1", 2)), True), ((("n2", 0), ("n2", 1)), False), ((), False)],
)
def test_a_copy_returns_where_one_failed_or_to_a_node_on_which_several_gpus_failed(
    failed: tuple[Place, ...], is_back: bool
) -> None:
    now = replace(NOW, failed_places={"shop/a": failed})
    assert returning_services(now, desired(a=(HERE, 40), b=(THERE, 30))) == ({"shop/a"} if is_back else set())
    runs = replace(now, in_force=desired(a=(HERE, 40), b=(THERE, 30)))
    assert returning_services(runs, desired(b=(THERE, 30))) == set(), "a copy may stop there"
    assert returning_services(runs, desired(a=(HERE, 60), b=(THERE, 30))) == ({"shop/a"} if is_back else set())


def test_a_service_is_placed_around_the_gpus_where_it_failed_unless_it_is_a_suspect() -> None:
    now = replace(NOW, failed_places={"shop/a": (HERE, THERE, ("n2", 0))})
    back = desired(a=(HERE, 40), b=(THERE, 30))
    assert starting_services(now, back) == {"shop/a"}, "it ran well between its failures"
    assert starting_services(replace(now, suspects=("shop/a",)), back) == set()
