"""A search beyond the next step finds of each change what a fleet in that state would show."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from app.control.domain.desired import Desired
from app.control.rollout.at_once import AT_ONCE
from app.control.rollout.changes import InstanceChange, changes, with_instance
from app.control.rollout.queue import usually
from app.control.rollout.rules import RolloutState
from app.control.rollout.scene import Scene
from app.control.rollout.search import Knot
from tests.app.control.rollout.fleets import drawn, rules
from tests.support.soak import scaled


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
            here[change.node] = with_instance(here[change.node], change.id, change.after)
        left = [change for change in todo if change not in made]
        fresh = Scene(here, target, RolloutState(), AT_ONCE, rules(), left, 0.0)
        assert _possible(knot, left) == _possible(fresh, left)


def _possible(scene: Scene, todo: list[InstanceChange]) -> dict[str, bool]:
    return {change.id: scene.obstacle(change) is None for change in todo}
