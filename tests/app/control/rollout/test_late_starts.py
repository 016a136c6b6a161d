"""One copy never starts: it is tried twice, its component stops, and every other change of the rollout completes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, InstanceStatus
from app.control.rollout.changes import changes, components
from app.control.rollout.ordering.finding import order
from app.control.rollout.rules import RolloutRules, RolloutState
from tests.app.control.rollout.fleets import (
    a_node,
    advance,
    all_serve,
    an_instance,
    drawn,
    replace_struct,
    rules,
    served,
)
from tests.app.control.rollout.nodes import Fleet
from tests.app.control.rollout.referee import placed_instances
from tests.support.soak import scaled

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_ROUNDS = 1500
NODES = ("n1", "n2", "n3", "n4")
RULES = rules(NODES)


@dataclass
class Rolled:
    """The history of a whole rollout, step by step."""

    fleet: Fleet
    target: Desired
    retried: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    is_finished: bool = False


def impatient_with(late: AssignedInstance) -> RolloutRules:
    """Returns rules under which only copies of this service can be late."""
    keys = [f"{model}/fp16/v100" for model in ("m-a", "m-b", "m-c", "m-search", "m-other")]
    return rules(NODES, start_seconds=dict.fromkeys(keys, 1e6) | {late.profile_key("v100"): 1.0})


def roll(
    fleet: Fleet, target: Desired, sequence: tuple[str, ...], the_rules: RolloutRules, frozen: Collection[str]
) -> Rolled:
    """Alternates steps and seconds, judged at every moment. Frozen nodes rest until something stops."""
    floor = {service: min(rate, fleet.goes_on_carrying(service)) for service, rate in served(target).items()}
    rolled, state = Rolled(fleet, target), RolloutState(sequence)
    for second in range(1, MOST_ROUNDS):
        now = START + timedelta(seconds=second)
        fleet.at = now.timestamp()
        step = advance(rolled.target, fleet.assigned, fleet.observed(), state, the_rules, now)
        state = msgspec.json.decode(msgspec.json.encode(step.state), type=RolloutState)  # as it is kept
        rolled.retried += step.retried
        rolled.stopped += [step.message] if step.stopped_reason else []
        rolled.target = rolled.target if step.target is None else step.target
        fleet.tell(step.changed, max(fleet.assigned_generations.values()) + 1)
        if step.done or step.is_over:
            rolled.is_finished = True
            break
        fleet.pass_time(() if rolled.stopped else frozen)
        assert fleet.overfull(RULES) == []
        for service, rate in floor.items():
            assert fleet.carries(service) >= rate - 1e-6, service
    for _ in range(100):  # what was taken back settles
        fleet.pass_time()
    assert fleet.overfull(RULES) == []
    return rolled


@pytest.mark.slow
@settings(max_examples=scaled(3_000, 40), deadline=None)
@given(drawn(most=7, nodes=4), st.integers(0, 1000), st.integers(0, 100))
def test_one_late_start_stops_only_its_component(fleets: tuple[Desired, Desired], seed: int, which: int) -> None:
    assigned, target = fleets
    found = order(assigned, target, RULES)
    todo = changes(assigned, found.target)
    starts = [change for change in todo if change.takes_room and change.instance.service]
    assume(starts)
    late = starts[which % len(starts)]
    fleet = Fleet(assigned, Random(seed))
    fleet.nodes[late.node].late = frozenset({late.id})
    part = next(part for part in components(todo) if late in part)
    tied, nodes = {change.id for change in part}, {change.node for change in part}
    rolled = roll(fleet, found.target, found.sequence, impatient_with(late.instance), set(NODES) - nodes)
    assert rolled.is_finished
    assert len(rolled.retried) == 1 and len(rolled.stopped) == 1
    assert all(f"{late.id} on {late.node}/0: " in message for message in [*rolled.retried, *rolled.stopped])
    assert all("is still starting" in message for message in [*rolled.retried, *rolled.stopped])
    was, goal, now = placed_instances(assigned), placed_instances(found.target), placed_instances(fleet.assigned)
    for id_ in was.keys() | goal.keys():
        if id_ not in tied:
            assert now.get(id_) == goal.get(id_), id_  # every other change is complete
        elif id_ == late.id:
            assert now.get(id_) == was.get(id_)
        else:
            assert now.get(id_) in (was.get(id_), goal.get(id_)), id_
    for id_ in was.keys() & goal.keys():
        node = fleet.nodes[now[id_][0]]
        assert any(copy.instance.id == id_ and copy.stage == "ready" for copy in node.copies) or goal[id_][1].job


def test_a_late_copy_starts_once_more_at_its_place_and_then_its_component_alone_stops() -> None:
    old, new = an_instance("old"), an_instance("new")
    other, others = an_instance("other", "other"), an_instance("others", "other")
    assigned = {"n1": a_node(old), "n3": a_node(other)}
    target = {"n2": a_node(new), "n4": a_node(others)}
    fleet = Fleet({**dict.fromkeys(NODES, a_node()), **assigned}, Random(1))
    fleet.nodes["n2"].late = frozenset({"new"})
    rolled = roll(fleet, {**dict.fromkeys(NODES, a_node()), **target}, (), impatient_with(new), ("n3", "n4"))
    assert sorted(placed_instances(fleet.assigned)) == ["old", "others"]
    assert (len(rolled.retried), len(rolled.stopped)) == (1, 1)


def test_the_deadline_counts_from_the_progress_of_the_copy_at_its_node() -> None:
    target = {"n1": a_node(an_instance("new"))}
    step = advance(target, {"n1": a_node()}, all_serve({}), RolloutState(), RULES, START)
    for seconds, stage in ((90, ""), (180, "starting"), (270, "verifying"), (360, "warming"), (459, "warming")):
        observed = all_serve(step.desired)
        observed = type(observed)({"new": InstanceStatus(stage, rising=stage)} if stage else {})
        step = advance(target, step.desired, observed, step.state, RULES, START + timedelta(seconds=seconds))
        assert not step.retried, seconds
    step = advance(target, step.desired, observed, step.state, RULES, START + timedelta(seconds=460))
    assert step.retried == ("new on n1/0: it is still warming after 460 s",)


def test_the_message_of_a_late_hand_over_names_the_stage_of_the_new_copy() -> None:
    old = an_instance("old")
    target = {"n1": a_node(replace_struct(old, sm_percent=60.0))}
    step = advance(target, {"n1": a_node(old)}, all_serve({"n1": a_node(old)}), RolloutState(), RULES, START)
    two = type(all_serve({}))({"old": InstanceStatus("ready", True, sm_percent=40, memory_gib=4, copies=2,
                                                     rising="verifying")})  # fmt: skip
    step = advance(target, step.desired, two, step.state, RULES, START + timedelta(seconds=1))
    step = advance(target, step.desired, two, step.state, RULES, START + timedelta(seconds=101))
    assert step.retried == ("old on n1/0: its new copy is still verifying after 101 s",)
