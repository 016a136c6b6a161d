"""A search beyond the next step finds of each change what a fleet in that state would show."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.control.domain.desired import Desired
from app.control.rollout.changes import InstanceChange, changes, components, put_instance
from app.control.rollout.ordering.at_once import AT_ONCE
from app.control.rollout.ordering.queue import usually
from app.control.rollout.ordering.search import Knot, narrow_to_parts, search
from app.control.rollout.rules import RolloutState
from app.control.rollout.scene import Scene
from tests.app.control.rollout.fleets import a_node, an_instance, drawn, rules
from tests.support.soak import scaled


@pytest.mark.slow
@settings(max_examples=scaled(10_000, 300), deadline=None)
@given(drawn(most=6), st.data())
def test_changes_that_are_made_and_taken_back_show_the_same_obstacles_as_a_new_scene(
    fleets: tuple[Desired, Desired], data: st.DataObject
) -> None:
    assigned, target = fleets
    todo = usually(changes(assigned, target))
    knot, made = Knot(assigned, target, rules(), todo), list[InstanceChange]()
    for _ in range(8):
        rest = [change for change in todo if change not in made]
        if made and (not rest or data.draw(st.booleans(), "takes back")):
            knot.take_back(made.pop())
        elif rest:
            change = data.draw(st.sampled_from(rest), "makes")
            before = _possible(knot, rest)
            knot.apply(change)
            made.append(change)
            others = [other for other in rest if other.id not in knot.near[change.id]]
            assert _possible(knot, others) == {other.id: before[other.id] for other in others}
        here = dict(assigned)
        for change in made:
            here[change.node] = put_instance(here[change.node], change.id, change.after)
        left = [change for change in todo if change not in made]
        fresh = Scene(here, target, RolloutState(), AT_ONCE, rules(), left, 0.0)
        assert _possible(knot, left) == _possible(fresh, left)


@pytest.mark.slow
@settings(max_examples=scaled(10_000, 300), deadline=None)
@given(drawn(most=6))
def test_where_a_knot_is_hopeless_no_order_leads_to_the_target(fleets: tuple[Desired, Desired]) -> None:
    assigned, target = fleets
    parts = components(changes(assigned, target))
    for part, start, goal in zip(parts, narrow_to_parts(assigned, parts), narrow_to_parts(target, parts), strict=True):
        todo = usually(part)
        if Knot(start, goal, rules(), todo).is_hopeless():
            assert not _has_order(Knot(start, goal, rules(), todo), todo, set())
            assert search(part, start, goal, rules()) is None


def test_copies_that_wait_for_each_others_room_are_hopeless_until_one_of_them_may_go_elsewhere() -> None:
    a, b, a2, b2 = (an_instance(id_, id_[0], 0, 80, 10) for id_ in ("a", "b", "a2", "b2"))
    assigned = {"n1": a_node(a), "n2": a_node(b), "n3": a_node()}
    crossed = {"n1": a_node(b2), "n2": a_node(a2)}
    assert Knot(assigned, crossed, rules(), usually(changes(assigned, crossed))).is_hopeless()
    aside = {"n1": a_node(b2), "n3": a_node(a2)}
    assert not Knot(assigned, aside, rules(), usually(changes(assigned, aside))).is_hopeless()


def _has_order(knot: Knot, todo: list[InstanceChange], tried: set[frozenset[str]]) -> bool:
    """Returns whether any order of these changes is possible, by trying all of them."""
    mark = frozenset(change.id for change in todo)
    if not todo or mark in tried:
        return not todo
    tried.add(mark)
    for change in todo:
        if knot.obstacle(change) is None:
            knot.apply(change)
            if _has_order(knot, [other for other in todo if other is not change], tried):
                return True
            knot.take_back(change)
    return False


def _possible(scene: Scene, todo: list[InstanceChange]) -> dict[str, bool]:
    return {change.id: scene.obstacle(change) is None for change in todo}
