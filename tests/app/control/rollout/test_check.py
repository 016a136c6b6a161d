"""A step that fails is undone, stops the rollout, and gives its reason."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec

from app.control.answer.explain.plan import explain_gateway_waits
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.rollout.rules import Advance, Leaving, RolloutState
from cli.views.rollout import rollout_lines
from tests.app.control.rollout.fleets import a_node, advance, all_serve, an_instance, replace_struct, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = an_instance("old"), an_instance("new")
BEHIND = "gateway edge-1 has not taken version 7 for 4 minutes; copies that leave keep serving"
LINES = ({"id": "old", "service": "shop/search", "node": "n1"},)
LARGER = replace_struct(OLD, sm_percent=60.0, rate_per_second=150.0)


def begun(assigned: Desired, target: Desired) -> Advance:
    return advance(target, assigned, all_serve(assigned), RolloutState(), rules(), NOW)


def looked(step: Advance, target: Desired, seconds: float, **statuses: InstanceStatus) -> Advance:
    served = all_serve(step.desired)
    observed = replace(served, instances={**served.instances, **statuses})
    return advance(target, step.desired, observed, step.state, rules(), NOW + timedelta(seconds=seconds))


def test_a_new_instance_that_a_node_cannot_start_is_left_out_again() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n2": a_node(NEW)}
    step = begun(assigned, target)
    held = InstanceStatus("", reason="no_template", message="serve is not defined here")
    once = looked(step, target, 1, new=held)
    assert not once.stopped_reason  # it may be passing
    stopped = looked(once, target, 12, new=held)
    assert stopped.stopped_reason == "step_failed"
    assert stopped.message == "new on n2/0: no_template: serve is not defined here"
    assert stopped.desired == {"n1": a_node(OLD), "n2": a_node()}
    assert stopped.state.leaving == {"new": Leaving("n2", NEW, stopped.state.leaving["new"].since)}


def test_a_refusal_reported_only_once_is_forgotten() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n2": a_node(NEW)}
    held = InstanceStatus("starting", reason="exited")
    step = looked(begun(assigned, target), target, 1, new=held)
    step = looked(step, target, 9, new=InstanceStatus("warming"))
    assert not looked(step, target, 15, new=held).stopped_reason


def test_a_reshaped_instance_gets_its_old_shape_back() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n1": a_node(LARGER)}
    step = begun(assigned, target)
    failing = InstanceStatus("ready", True, "exited", "it ended by itself", sm_percent=40, memory_gib=4)
    stopped = looked(looked(step, target, 1, old=failing), target, 12, old=failing)
    assert stopped.stopped_reason == "step_failed"
    assert stopped.desired == assigned


def test_an_old_copy_that_reports_why_it_ends_is_no_failure() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n1": a_node(LARGER)}
    step = begun(assigned, target)
    replaced = InstanceStatus("ready", True, "replaced", sm_percent=60, memory_gib=4, copies=2)
    assert not looked(looked(step, target, 1, old=replaced), target, 30, old=replaced).stopped_reason


def test_a_hand_over_stays_open_while_a_gateway_keeps_the_old_copy_and_says_which() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n1": a_node(LARGER)}
    step = begun(assigned, target)
    kept = InstanceStatus("ready", True, "gateway_behind", BEHIND, sm_percent=60, memory_gib=4, copies=2)
    for seconds in range(10, 4000, 10):
        step = looked(step, target, seconds, old=kept)
        assert not (step.stopped_reason or step.retried or step.done)
    assert step.state.pending["old"].waits_for == BEHIND
    (sentence,) = explain_gateway_waits(
        {"state": "rolling", "rollout": msgspec.to_builtins(step.state)}, {"instances": LINES}
    )
    assert sentence == f"{BEHIND}: old of shop/search on n1"
    ends = replace(kept, reason="", message="")
    step = looked(step, target, 4010, old=ends)
    assert not (step.stopped_reason or step.retried), "it still has the time that every old copy has"
    assert step.state.pending["old"].waits_for == ""
    assert looked(step, target, 4020).done


def test_a_copy_that_leaves_says_which_gateway_keeps_it_also_after_its_rollout() -> None:
    assigned, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n2": a_node(NEW)}
    step = begun(assigned, target)
    kept = InstanceStatus("draining", False, "gateway_behind", BEHIND, sm_percent=40, memory_gib=4)
    step = looked(step, target, 60, old=kept)
    assert not step.done
    step = looked(step, target, 301, old=kept)
    assert step.overdue == (f"old on n1/0: {BEHIND}; it is still there after 301 s",)
    rollout = msgspec.to_builtins(step.state)
    line = f"leaving: old (shop/search) on n1/0: {BEHIND}"
    for state, shown in (
        ("superseded", []),
        ("done", [line]),
        ("rolling", ["rollout: step 1; instances: 1 on their way out", line]),
    ):
        assert list(rollout_lines({"state": state, "rollout": rollout})) == shown
    assert explain_gateway_waits({"state": "done", "rollout": rollout}, {"instances": ()}, "shop/other") == []
    assert explain_gateway_waits({"state": "done", "rollout": rollout}, {"instances": ()}, "shop/search") == [
        f"{BEHIND}: old of shop/search on n1"
    ]
    assert looked(step, target, 310).state.leaving == {}


def test_a_step_has_some_times_its_start_seconds() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n2": a_node(NEW)}
    patient = rules(start_seconds={"m-search/fp16/v100": 40.0})
    step = begun(assigned, target)
    served = all_serve(step.desired)
    warming = replace(served, instances={**served.instances, "new": InstanceStatus("warming")})
    step = advance(target, step.desired, warming, step.state, patient, NOW)

    def at(seconds: float) -> Advance:
        return advance(target, step.desired, warming, step.state, patient, NOW + timedelta(seconds=seconds))

    assert not at(199).retried
    assert at(200).retried == ("new on n2/0: it is still warming after 200 s",)
    step = replace(step, state=replace(step.state, retried=("new",)))
    assert not at(399).stopped_reason, "a further try has twice as long"
    assert at(400).stopped_reason == "step_timed_out"
    assert at(400).message == "new on n2/0: it is still warming after 400 s"


def test_the_copy_before_does_not_pass_for_the_new_one() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n1": a_node(LARGER)}
    step = begun(assigned, target)
    still = InstanceStatus("ready", True, sm_percent=40, memory_gib=4)
    assert "old" in looked(step, target, 5, old=still).state.pending
    assert looked(step, target, 5).done


def test_a_shape_that_looks_the_same_from_outside_has_its_start_seconds() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n1": a_node(replace_struct(OLD, variant="int8"))}
    step = begun(assigned, target)
    assert not looked(step, target, 5).done
    assert looked(step, target, 20).done


def test_an_instance_that_served_and_fell_later_does_not_stop_a_rollout() -> None:
    assigned = {"n1": a_node(OLD)}
    fallen = FleetStatus({"old": InstanceStatus("", reason="exited")})
    step = advance(assigned, assigned, fallen, RolloutState(), rules(), NOW)
    assert not step.stopped_reason


def test_a_new_copy_in_another_shape_that_alone_serves_its_service_is_not_taken_back() -> None:
    other_shape = InstanceStatus("ready", routed=True, sm_percent=NEW.sm_percent, memory_gib=NEW.memory_gib + 0.125)
    target = {"n2": a_node(NEW)}
    step = begun({}, target)
    kept = looked(looked(step, target, 1, new=other_shape), target, 110, new=other_shape)
    assert kept.desired == target
    assert not kept.retried
    assert not kept.state.pending
    both = {"n1": a_node(OLD), "n2": a_node(NEW)}
    step = begun({"n1": a_node(OLD)}, both)
    taken = looked(looked(step, both, 1, new=other_shape), both, 110, new=other_shape)
    assert taken.retried == ("new on n2/0: it is ready and does not serve alone after 110 s",)
    assert taken.desired == {"n1": a_node(OLD), "n2": a_node()}
