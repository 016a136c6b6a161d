"""Rooms for trial against the rooms of a fleet: they count the same, and go back to what stood there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.planning.availability import Availability
from solvers.planning.fleet.offers import FleetShape, read_offers
from solvers.planning.fleet.rooms import FleetRooms
from solvers.planning.fleet.trial_rooms import TrialRooms
from solvers.planning.problem import Place, Problem, Service
from tests.solvers.hetsev.fleet.fleets import fleet
from tests.solvers.planning.random_problems import random_problem


def problem_of(seed: int) -> Problem:
    return replace(random_problem(seed), state=None, jobs={})


def list_shapes(rooms: FleetRooms, service: Service) -> list[list[FleetShape]]:
    found = [read_offers(rooms.problem).find_best_shapes(service, [pool]) for pool in rooms.pools]
    return [shapes for shapes in found if shapes]


def state_of(rooms: TrialRooms) -> list[list[Any]]:
    commons = rooms.commons
    arrays = (rooms.free_sm, rooms.free_gib, rooms.free_w, rooms.pressure, rooms.clients, rooms.closed)
    taken = [taken for taken in (*commons.gpus_taken.values(), *commons.price_taken.values()) if taken]
    return [array.tolist() for array in (*arrays, commons.cpu_cores, commons.host_memory_gib, np.array(taken))]


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 400), pace=st.integers(1, 4))
def test_what_was_placed_is_counted_as_in_other_rooms_and_taken_back_to_the_last_digit(seed: int, pace: int) -> None:
    problem = problem_of(seed)
    rooms, other = TrialRooms(problem, (), ()), FleetRooms(problem, (), ())
    alike = [service for service in problem.services.values() if service.min_instances == 1]
    asked = [(service, shapes) for service in alike for shapes in list_shapes(rooms, service)]
    before = [rooms.rooms_for(shapes, service) for service, shapes in asked]
    first = state_of(rooms)
    for number, (service, shapes) in enumerate(asked):
        shape = shapes[number * pace % len(shapes)]
        for place in rooms.list_cheapest(shape, service, [shape.pool], 1)[:1]:
            rooms.put_on(place, shape, service)
            other.put_on(place, shape, service)
        for also, known in asked:
            assert rooms.rooms_for(known, also) == other.rooms_for(known, also)
    rooms.undo()
    assert state_of(rooms) == first
    assert [rooms.rooms_for(shapes, service) for service, shapes in asked] == before


@pytest.mark.parametrize(("spread", "most"), [("gpu", 6), ("node", 3), ("region", 2)])
def test_instances_are_apart_and_off_spot_nodes_as_availability_asks(
    spread: Literal["gpu", "node", "region"], most: int
) -> None:
    made = fleet(min_instances=2, availability=Availability(spread=spread, max_spot_share=0.0))
    spot, far = (made.nodes[name] for name in ("fast-0", "fast-1"))
    nodes = {**made.nodes, spot.name: replace(spot, purchase="spot"), far.name: replace(far, region="eu")}
    problem = replace(made, nodes=nodes)
    service, homes = problem.services["shop/a"], list[Place]()
    rooms = TrialRooms(problem, (), ())
    for shapes in list_shapes(rooms, service) * 8:
        for place in rooms.list_cheapest(shapes[0], service, [shapes[0].pool], 4)[:1]:
            rooms.put_on(place, shapes[0], service)
            homes.append(place)

    assert len(homes) == most
    assert "fast-0" not in {node for node, _ in homes}
    units: dict[str, list[object]] = {
        "gpu": [*homes],
        "node": [name for name, _ in homes],
        "region": [nodes[name].region for name, _ in homes],
    }
    assert len(set(units[spread])) == most


def test_a_gpu_takes_nothing_more_once_it_is_closed_or_bears_nothing() -> None:
    problem = fleet()
    service, rooms = problem.services["shop/a"], TrialRooms(problem, (), ())
    shape = list_shapes(rooms, service)[0][0]
    place = rooms.list_cheapest(shape, service, [shape.pool], 1)[0]
    rooms.close(place)
    assert place not in rooms.list_cheapest(shape, service, [shape.pool], 99)
    rooms.undo()
    rooms.bear_no_more(place, 0.01)
    assert rooms.bears(place, 0.02)  # nothing runs there that could be too slow
    rooms.put_on(place, shape, problem.services["shop/b"])
    assert not rooms.bears(place, 0.02)
    assert place not in rooms.list_cheapest(shape, service, [shape.pool], 99)
    rooms.bear_again(place)
    assert place in rooms.list_cheapest(shape, service, [shape.pool], 99)


def test_a_node_that_is_billed_whole_is_paid_with_its_first_gpu() -> None:
    made = fleet()
    problem = replace(made, nodes={name: replace(node, pricing="node") for name, node in made.nodes.items()})
    service, rooms = problem.services["shop/a"], TrialRooms(problem, (), ())
    shape = list_shapes(rooms, service)[0][0]
    rooms.put_on(("fast-1", 0), shape, service)

    assert rooms.list_cheapest(shape, problem.services["shop/b"], [shape.pool], 2)[:2] == [("fast-1", 1), ("fast-1", 0)]
