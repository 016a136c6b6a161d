"""Step by step, whatever is wanted next: no backend with weight is ever empty, nothing ends that gets requests."""

from __future__ import annotations

import random

from agents.gateway.cluster.objects import (
    BACKEND,
    ROUTE,
    SLICE,
    ParentGateway,
    RouteSettings,
)
from agents.gateway.cluster.reading import SeenObjects, read_objects
from agents.gateway.cluster.shapes import Shapes, divide_copies
from agents.gateway.cluster.steps import RouteStep, choose_step
from agents.gateway.wire import RouteSpec
from agents.kubernetes.api import Object

SETTINGS = RouteSettings("edge-1", "routes", ParentGateway("infra", "public"))
SERVICE = "shop/search"


class SmallStore:
    """Objects by kind and name, as an API server keeps them; each write can be looked at."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {kind.name: {} for kind in (ROUTE, BACKEND, SLICE)}

    def see(self) -> SeenObjects:
        found = {kind: self.objects[kind.name] for kind in (ROUTE, BACKEND, SLICE)}
        return read_objects(found)[0].get(SERVICE, SeenObjects())

    def carry_out(self, step: RouteStep) -> None:
        """Writes one object after the other; a Gateway may read between any two."""
        for kind, wanted in step.puts:
            self.objects[kind.name][wanted["metadata"]["name"]] = wanted
            self.check()
        for kind, found in step.deletes:
            del self.objects[kind.name][found["metadata"]["name"]]
            self.check()

    def served(self) -> dict[str, set[str]]:
        """Returns the addresses to which requests go, by backend."""
        routes = list(self.objects[ROUTE.name].values())
        backends = routes[0]["spec"]["rules"][0]["backendRefs"] if routes else []
        named: dict[str, set[str]] = {each["name"]: set() for each in backends if each["weight"]}
        for found in self.objects[SLICE.name].values():
            name = found["metadata"]["labels"]["kubernetes.io/service-name"]
            if name in named:
                named[name].add(f"{found['endpoints'][0]['addresses'][0]}:{found['ports'][0]['port']}")
        return named

    def check(self) -> None:
        for route in self.objects[ROUTE.name].values():
            for backend in route["spec"]["rules"][0]["backendRefs"]:
                assert backend["name"] in self.objects[BACKEND.name], "it names a Service that is there"
        for name, addresses in self.served().items():
            assert addresses, f"{name} has weight and no copy"


def test_any_change_after_any_other_leaves_no_backend_with_weight_empty() -> None:
    chance = random.Random(5)
    for _ in range(30):
        store, alive = SmallStore(), {0: 10.0}
        for number in range(1, 12):
            for gone in chance.sample(sorted(alive), k=chance.randint(0, len(alive) - 1)):
                del alive[gone]
            alive = {each: chance.choice((rate, 5.0, 7.0, 20.0)) for each, rate in alive.items()}
            alive[number] = chance.choice((5.0, 7.0, 20.0, 31.0))
            routes = [RouteSpec(f"c{each}", SERVICE, f"10.0.0.1:{each + 1}", rate) for each, rate in alive.items()]
            shapes = divide_copies(routes, store.see().list_places())
            # Now and then newer endpoints come before these are in force.
            put_in_force(store, shapes, most=chance.choice((1, 2, 3, 100)))
        put_in_force(store, shapes)
        served = [each for addresses in store.served().values() for each in addresses]
        assert sorted(served) == sorted(f"10.0.0.1:{each + 1}" for each in alive)


def put_in_force(store: SmallStore, shapes: Shapes | None, most: int = 100) -> None:
    """Carries out steps, the Gateway having taken each before the next, until all is in force or `most` are done."""
    for _ in range(most):
        step = choose_step(SETTINGS, SERVICE, shapes, store.see(), settled=True)
        store.carry_out(step)
        if step.in_force:
            assert choose_step(SETTINGS, SERVICE, shapes, store.see(), settled=True) == RouteStep((), [], in_force=True)
            return
    assert most < 100, "it never ends"


def test_new_copies_have_slices_then_a_backend_without_weight_and_weight_once_the_gateway_has_taken_that() -> None:
    store = SmallStore()
    first = divide_copies([RouteSpec("a", SERVICE, "10.0.0.1:1", 5.0)], {})
    put_in_force(store, first)
    both = [RouteSpec("a", SERVICE, "10.0.0.1:1", 5.0), RouteSpec("b", SERVICE, "[fd00::1]:2", 7.0)]
    shapes = divide_copies(both, store.see().list_places())
    store.carry_out(choose_step(SETTINGS, SERVICE, shapes, store.see(), settled=True))
    assert len(store.objects[SLICE.name]) == 2
    store.carry_out(choose_step(SETTINGS, SERVICE, shapes, store.see(), settled=False))
    assert len(store.served()) == 1, "its backend is listed without weight"
    assert choose_step(SETTINGS, SERVICE, shapes, store.see(), settled=False) == RouteStep()
    store.carry_out(choose_step(SETTINGS, SERVICE, shapes, store.see(), settled=True))
    assert len(store.served()) == 2
    alone = divide_copies(both[1:], store.see().list_places())
    store.carry_out(choose_step(SETTINGS, SERVICE, alone, store.see(), settled=True))
    assert (len(store.served()), len(store.objects[SLICE.name])) == (1, 2), "first its weight is gone"
    assert choose_step(SETTINGS, SERVICE, alone, store.see(), settled=False) == RouteStep()
    put_in_force(store, alone)
    assert (len(store.objects[SLICE.name]), len(store.objects[BACKEND.name])) == (1, 1)
    assert choose_step(SETTINGS, SERVICE, None, store.see(), settled=False).deletes[0][0] is ROUTE
    put_in_force(store, None)
    assert not any(store.objects.values())
