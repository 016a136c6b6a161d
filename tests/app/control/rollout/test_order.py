"""An order that makes before it breaks is found whenever there is one; what has none is named."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings

from app.control.domain.desired import Desired
from app.control.rollout import order
from tests.app.control.rollout.fleets import a_job, a_node, an_instance, drawn, rules, served
from tests.app.control.rollout.referee import faults, has_an_order, standing
from tests.support.soak import scaled


@settings(max_examples=scaled(10_000, 300), deadline=None)
@given(drawn(most=6))
def test_every_step_has_room_and_capacity_and_the_last_is_the_target(fleets: tuple[Desired, Desired]) -> None:
    told, target = fleets
    found = order(told, target, rules())
    assert standing(found.steps[-1] if found.steps else told) == standing(found.target)
    held = {one.service for one in found.stuck}
    for id_, (_, one) in standing(target).items():
        if one.owner not in held:
            assert standing(found.target)[id_][1] == one
    for before, after in pairwise([told, *found.steps]):
        assert list(faults(before, after, served(found.target), rules())) == []


@settings(max_examples=scaled(10_000, 300), deadline=None)
@given(drawn(most=3, nodes=2, jobs=False))
def test_only_what_no_order_at_all_can_reach_is_stuck(fleets: tuple[Desired, Desired]) -> None:
    told, target = fleets
    assert bool(order(told, target, rules()).stuck) != has_an_order(told, target, rules())


def test_a_chain_over_three_gpus_is_found() -> None:
    """b leaves its GPU first, then a follows into the room, which makes room for c."""
    told = {"n1": a_node(an_instance("a1", "a", sm=90)), "n2": a_node(an_instance("b1", "b", sm=90)), "n3": a_node()}
    target = {
        "n1": a_node(an_instance("c1", "c", sm=90)),
        "n2": a_node(an_instance("a2", "a", sm=90)),
        "n3": a_node(an_instance("b2", "b", sm=90)),
    }
    found = order(told, target, rules())
    assert found.stuck == ()
    assert [sorted(standing(step)) for step in found.steps] == [
        ["a1", "b1", "b2"], ["a1", "b2"], ["a1", "a2", "b2"], ["a2", "b2"], ["a2", "b2", "c1"],
    ]  # fmt: skip


def test_two_that_would_change_places_are_named_with_the_room_that_helps() -> None:
    told = {"n1": a_node(an_instance("a1", "a", sm=60)), "n2": a_node(an_instance("b1", "b", sm=70))}
    target = {"n1": a_node(an_instance("b2", "b", sm=70)), "n2": a_node(an_instance("a2", "a", sm=60))}
    found = order(told, target, rules())
    assert {one.service: (one.reason, one.needs_sm_percent) for one in found.stuck} == {
        "shop/a": ("no_room_to_hand_over", 30.0),
        "shop/b": ("no_room_to_hand_over", 30.0),
    }
    assert standing(found.target) == standing(told)
    assert found.steps == ()


def test_what_is_stuck_does_not_stop_the_rest() -> None:
    told = {
        "n1": a_node(an_instance("a1", "a", memory=10)),
        "n2": a_node(an_instance("b1", "b")),
        "n3": a_node(),
    }
    target = {
        "n1": a_node(an_instance("a1", "a", memory=12)),
        "n2": a_node(),
        "n3": a_node(an_instance("b2", "b")),
    }
    found = order(told, target, rules())
    assert [(one.service, one.needs_memory_gib) for one in found.stuck] == [("shop/a", 6.0)]
    assert sorted(standing(found.target)) == ["a1", "b2"]
    assert found.target["n1"] == told["n1"]


def test_what_would_take_the_place_of_something_stuck_stays_too() -> None:
    told = {"n1": a_node(an_instance("a1", "a", memory=10)), "n2": a_node(an_instance("b1", "b", memory=6))}
    target = {
        "n1": a_node(an_instance("a1", "a", memory=8), an_instance("b2", "b", memory=8)),
        "n2": a_node(),
    }
    found = order(told, target, rules())
    assert {one.service for one in found.stuck} == {"shop/a", "shop/b"}
    assert standing(found.target) == standing(told)


def test_the_usual_order_is_left_where_looking_further_helps() -> None:
    """What is new would take the room that a larger hand-over beside it needs for a while."""
    told = {"n1": a_node(an_instance("a1", "a", sm=30, memory=5))}
    target = {"n1": a_node(an_instance("a1", "a", sm=30, memory=7), an_instance("b1", "b", sm=30, memory=8))}
    found = order(told, target, rules())
    assert found.stuck == ()
    assert found.sequence == ("a1", "b1")


def test_a_cold_start_is_one_step_and_needs_no_order() -> None:
    target = {f"n{node}": a_node(*(an_instance(f"i{node}-{n}", f"s{n}", sm=20) for n in range(4))) for node in range(9)}
    found = order({}, target, rules(nodes=list(target)))
    assert (len(found.steps), found.sequence, found.stuck) == (1, (), ())


def test_jobs_give_way_in_an_order_too() -> None:
    told = {"n1": a_node(a_job("job", sm=90)), "n2": a_node()}
    target = {"n1": a_node(an_instance("new", sm=90)), "n2": a_node(a_job("again", sm=90))}
    found = order(told, target, rules())
    assert [sorted(standing(step)) for step in found.steps] == [[], ["again", "new"]]
