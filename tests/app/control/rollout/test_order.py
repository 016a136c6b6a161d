"""An order that starts copies before it stops others is found if there is one; the remaining moves are named."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings

from app.control.domain.desired import Desired
from app.control.rollout.changes import changes
from app.control.rollout.ordering.finding import find_blocked, order
from app.control.rollout.ordering.queue import usually
from tests.app.control.rollout.fleets import a_job, a_node, an_instance, drawn, rules, served
from tests.app.control.rollout.referee import faults, has_an_order, placed_instances
from tests.app.control.rollout.stepping import steps_of
from tests.support.soak import scaled


@pytest.mark.slow
@settings(max_examples=scaled(10_000, 300), deadline=None)
@given(drawn(most=6))
def test_every_step_has_room_and_capacity_and_the_last_is_the_target(fleets: tuple[Desired, Desired]) -> None:
    assigned, target = fleets
    found = order(assigned, target, rules())
    assert (not find_blocked(assigned, target, rules())) == (not found.stuck)
    steps = [assigned, *steps_of(assigned, found, rules())]
    assert placed_instances(steps[-1]) == placed_instances(found.target)
    held = {instance.service for instance in found.stuck}
    for id_, (_, instance) in placed_instances(target).items():
        if instance.owner not in held:
            assert placed_instances(found.target)[id_][1] == instance
    for before, after in pairwise(steps):
        assert list(faults(before, after, served(found.target), rules())) == []


@pytest.mark.slow
@settings(max_examples=scaled(10_000, 300), deadline=None)
@given(drawn(most=3, nodes=2, jobs=False))
def test_only_changes_that_no_order_can_reach_are_stuck(fleets: tuple[Desired, Desired]) -> None:
    assigned, target = fleets
    assert bool(order(assigned, target, rules()).stuck) != has_an_order(assigned, target, rules())


def test_a_chain_over_three_gpus_is_found() -> None:
    """b leaves its GPU first, then a follows into the room, which makes room for c."""
    assigned = {
        "n1": a_node(an_instance("a1", "a", sm=90)),
        "n2": a_node(an_instance("b1", "b", sm=90)),
        "n3": a_node(),
    }
    target = {
        "n1": a_node(an_instance("c1", "c", sm=90)),
        "n2": a_node(an_instance("a2", "a", sm=90)),
        "n3": a_node(an_instance("b2", "b", sm=90)),
    }
    found = order(assigned, target, rules())
    assert found.stuck == ()
    assert [sorted(placed_instances(step)) for step in steps_of(assigned, found, rules())] == [
        ["a1", "b1", "b2"], ["a1", "b2"], ["a1", "a2", "b2"], ["a2", "b2"], ["a2", "b2", "c1"],
    ]  # fmt: skip


def test_two_that_would_change_places_are_named_with_the_room_that_helps() -> None:
    assigned = {"n1": a_node(an_instance("a1", "a", sm=60)), "n2": a_node(an_instance("b1", "b", sm=70))}
    target = {"n1": a_node(an_instance("b2", "b", sm=70)), "n2": a_node(an_instance("a2", "a", sm=60))}
    found = order(assigned, target, rules())
    assert {change.service: (change.reason, change.needs_sm_percent) for change in found.stuck} == {
        "shop/a": ("no_room_to_hand_over", 30.0),
        "shop/b": ("no_room_to_hand_over", 30.0),
    }
    assert placed_instances(found.target) == placed_instances(assigned)
    assert steps_of(assigned, found, rules()) == ()


def test_a_stuck_change_does_not_stop_the_rest() -> None:
    assigned = {
        "n1": a_node(an_instance("a1", "a", memory=10)),
        "n2": a_node(an_instance("b1", "b")),
        "n3": a_node(),
    }
    target = {
        "n1": a_node(an_instance("a1", "a", memory=12)),
        "n2": a_node(),
        "n3": a_node(an_instance("b2", "b")),
    }
    found = order(assigned, target, rules())
    assert [(change.service, change.needs_memory_gib) for change in found.stuck] == [("shop/a", 6.0)]
    assert sorted(placed_instances(found.target)) == ["a1", "b2"]
    assert found.target["n1"] == assigned["n1"]


def test_a_change_that_needs_the_place_of_a_stuck_change_stays_too() -> None:
    assigned = {"n1": a_node(an_instance("a1", "a", memory=10)), "n2": a_node(an_instance("b1", "b", memory=6))}
    target = {
        "n1": a_node(an_instance("a1", "a", memory=8), an_instance("b2", "b", memory=8)),
        "n2": a_node(),
    }
    found = order(assigned, target, rules())
    assert {change.service for change in found.stuck} == {"shop/a", "shop/b"}
    assert placed_instances(found.target) == placed_instances(assigned)


def test_another_order_is_used_where_a_deeper_search_helps() -> None:
    """New instances would take the room that a larger hand-over on the same GPU needs for a while."""
    assigned = {"n1": a_node(an_instance("a1", "a", sm=30, memory=5))}
    target = {"n1": a_node(an_instance("a1", "a", sm=30, memory=7), an_instance("b1", "b", sm=30, memory=8))}
    found = order(assigned, target, rules())
    assert found.stuck == ()
    assert found.sequence == ("a1", "b1")


def test_a_cold_start_is_one_step_and_needs_no_order() -> None:
    target = {f"n{node}": a_node(*(an_instance(f"i{node}-{n}", f"s{n}", sm=20) for n in range(4))) for node in range(9)}
    found = order({}, target, rules(nodes=list(target)))
    steps = steps_of({}, found, rules(nodes=list(target)))
    assert (len(steps), found.sequence, found.stuck) == (1, (), ())


def test_jobs_give_way_in_an_order_too() -> None:
    assigned = {"n1": a_node(a_job("job", sm=90)), "n2": a_node()}
    target = {"n1": a_node(an_instance("new", sm=90)), "n2": a_node(a_job("again", sm=90))}
    found = order(assigned, target, rules())
    assert [sorted(placed_instances(step)) for step in steps_of(assigned, found, rules())] == [[], ["again", "new"]]


def test_of_copies_that_end_the_one_that_carries_least_goes_first() -> None:
    assigned = {"n1": a_node(an_instance("a", rate=90)), "n2": a_node(an_instance("b", rate=10))}
    todo = changes(assigned, {"n1": a_node(), "n2": a_node()})
    assert [change.id for change in usually(todo)] == ["b", "a"]
