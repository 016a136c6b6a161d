"""What may be told now, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.contract.assignments import AssignedGpu, Frame
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.rollout import Advance, RolloutRules, RolloutState, advance
from app.control.rollout.changes import WrongTarget
from tests.app.control.rollout.fleets import a_job, a_node, all_serve, an_instance, replace_struct, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = an_instance("old"), an_instance("new")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def first(told: Desired, target: Desired, the_rules: RolloutRules | None = None, **seen: object) -> Advance:
    return advance(target, told, all_serve(told, **seen), RolloutState(), the_rules or rules(), NOW)


def ids(desired: Desired, node: str) -> list[str]:
    return [one.id for one in desired[node].instances]


def on_its_way(told: Desired, **seen: InstanceStatus) -> FleetStatus:
    """All serve as told but for these."""
    observed = all_serve(told)
    return replace(observed, instances={**observed.instances, **seen})


# Make before break


def test_a_move_starts_the_new_one_and_leaves_the_old_one_alone() -> None:
    step = first({"n1": a_node(OLD)}, {"n2": a_node(NEW)})
    assert ids(step.desired, "n1") == ["old"]
    assert ids(step.desired, "n2") == ["new"]
    assert [one.reason for one in step.waiting] == ["capacity_at_risk"]


def test_the_old_one_goes_when_the_new_one_serves() -> None:
    told = {"n1": a_node(OLD), "n2": a_node(NEW)}
    target = {"n2": a_node(NEW)}
    early = RolloutState(pending=first({"n1": a_node(OLD)}, target).state.pending)
    starting = on_its_way(told, new=InstanceStatus("warming"))
    assert ids(advance(target, told, starting, early, rules(), NOW).desired, "n1") == ["old"]
    step = advance(target, told, all_serve(told), early, rules(), NOW)
    assert ids(step.desired, "n1") == []
    assert not step.done  # it has still to go


def test_a_copy_that_the_gateway_does_not_know_yet_carries_nothing() -> None:
    told = {"n1": a_node(OLD), "n2": a_node(NEW)}
    step = advance(
        {"n2": a_node(NEW)}, told, on_its_way(told, new=InstanceStatus("ready")), RolloutState(), rules(), NOW
    )
    assert ids(step.desired, "n1") == ["old"]


def test_a_rollout_is_done_when_what_left_is_gone() -> None:
    told, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n2": a_node(NEW)}
    step = advance(target, told, all_serve(told), RolloutState(), rules(), NOW)
    draining = on_its_way(step.desired, old=InstanceStatus("draining"))
    assert not advance(target, step.desired, draining, step.state, rules(), NOW).done
    assert advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW).done


def test_what_is_leaving_holds_its_place_until_its_node_has_heard_of_it_and_said_so() -> None:
    big = an_instance("big", "other", memory=14)
    told, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n1": a_node(big), "n2": a_node(NEW)}
    step = advance(target, told, all_serve(told), RolloutState(), rules(), NOW)
    assert ids(step.desired, "n1") == []
    unheard = all_serve(step.desired, assigned_generations={"n1": 7}, generations={"n1": 6})
    assert ids(advance(target, step.desired, unheard, step.state, rules(), NOW).desired, "n1") == []
    heard = all_serve(step.desired, assigned_generations={"n1": 7}, generations={"n1": 7})
    assert ids(advance(target, step.desired, heard, step.state, rules(), NOW).desired, "n1") == ["big"]


def test_a_smaller_shape_is_told_only_when_others_carry_the_difference() -> None:
    small = replace_struct(OLD, sm_percent=20, rate_per_second=40)
    told, target = {"n1": a_node(OLD)}, {"n1": a_node(small), "n2": a_node(replace_struct(NEW, rate_per_second=60))}
    step = first(told, target)
    assert step.made == ("new",)
    again = advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert again.made == ("old",)


def test_where_too_little_is_carried_nothing_is_taken_away() -> None:
    told = {"n1": a_node(OLD)}
    step = first(told, {"n2": a_node(replace_struct(NEW, rate_per_second=300)), "n3": a_node()})
    assert ids(step.desired, "n1") == ["old"]


def test_least_instances_are_kept_although_fewer_would_carry_the_rate() -> None:
    two = {"n1": a_node(OLD), "n2": a_node(NEW)}
    target = {"n2": a_node(NEW), "n3": a_node(an_instance("third", rate=1))}
    told = {**two, "n3": a_node()}
    step = first(told, target, rules(min_instances={"shop/search": 2}))
    assert ids(step.desired, "n1") == ["old"]


def test_a_service_that_is_deleted_ends_at_once() -> None:
    assert first({"n1": a_node(OLD)}, {}).made == ("old",)


# Weights and clocks


def test_weights_change_at_once() -> None:
    told = {"n1": a_node(OLD), "n2": a_node(NEW)}
    lower, higher = replace_struct(OLD, rate_per_second=50), replace_struct(NEW, rate_per_second=150)
    step = first(told, {"n1": a_node(lower), "n2": a_node(higher)})
    assert step.made == ("new",)
    assert advance({"n1": a_node(lower), "n2": a_node(higher)}, step.desired, all_serve(step.desired), step.state,
                   rules(), NOW).made == ("old",)  # fmt: skip


def test_a_higher_clock_goes_before_the_rate_that_needs_it() -> None:
    more = replace_struct(OLD, rate_per_second=150)
    told, target = {"n1": a_node(OLD, clocks={0: 900})}, {"n1": a_node(more, clocks={0: 1530})}
    step = first(told, target)
    assert step.made == ()
    assert step.desired["n1"].gpus == target["n1"].gpus
    lagging = all_serve(step.desired, assigned_generations={"n1": 2}, generations={"n1": 1})
    assert advance(target, step.desired, lagging, step.state, rules(), NOW).made == ()
    there = all_serve(step.desired, assigned_generations={"n1": 2}, generations={"n1": 2})
    assert advance(target, step.desired, there, step.state, rules(), NOW).made == ("old",)


def test_a_lower_clock_waits_until_nothing_needs_the_higher() -> None:
    told = {"n1": a_node(OLD, clocks={0: 1530})}
    less = replace_struct(OLD, rate_per_second=50)
    rest = replace_struct(NEW, rate_per_second=50)
    target = {"n1": a_node(less, clocks={0: 900}), "n2": a_node(rest, clocks={0: 900})}
    step = first(told, target)
    assert step.desired["n1"].gpus[0].clock_mhz == Frame(1530, 600, 1530)
    step = advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert step.desired["n1"].instances == (less,)
    assert step.desired["n1"].gpus == target["n1"].gpus


def test_a_cap_that_falls_while_the_clock_rises_waits_alone() -> None:
    more = replace_struct(OLD, rate_per_second=150)
    gpu = AssignedGpu(0, "u0", Frame(1530, 600, 1530), 250.0)
    step = first({"n1": a_node(OLD, clocks={0: 900})}, {"n1": replace(a_node(more), gpus=(gpu,))})
    assert step.desired["n1"].gpus == (replace_struct(gpu, cap_w=300.0),)


# Room


def test_two_hand_overs_on_one_gpu_go_one_after_the_other() -> None:
    one, other = an_instance("one", "a", sm=30), an_instance("other", "b", sm=30)
    told = {"n1": a_node(one, other)}
    target = {"n1": a_node(replace_struct(one, sm_percent=40.0), replace_struct(other, sm_percent=40.0))}
    step = first(told, target)
    assert step.made == ("one",)
    assert step.waiting[0].reason == "hand_over_under_way"
    two_copies = on_its_way(step.desired, one=InstanceStatus("ready", True, sm_percent=40, memory_gib=4, copies=2))
    assert advance(target, step.desired, two_copies, step.state, rules(), NOW).made == ()
    assert advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW).made == ("other",)


def test_strict_hand_overs_need_room_for_both_copies() -> None:
    one = an_instance("one", sm=60)
    told = {"n1": a_node(one, handover="strict")}
    target = {"n1": a_node(replace_struct(one, sm_percent=50.0), handover="strict")}
    step = first(told, target)
    assert step.made == ()
    assert step.waiting[0].message == "needs 10 SM% more next to the copy it replaces"


def test_a_dedicated_instance_waits_until_it_has_its_gpu_alone() -> None:
    alone = an_instance("alone", "vip", dedicated=True)
    step = first({"n1": a_node(OLD)}, {"n1": a_node(alone), "n2": a_node(NEW)})
    assert step.made == ("new",)
    assert {one.instance: one.reason for one in step.waiting}["alone"] == "dedicated"


def test_an_instance_that_has_only_begun_to_come_up_is_told_its_new_shape_at_once() -> None:
    larger = {"n1": a_node(replace_struct(NEW, sm_percent=60.0))}
    step = first({"n1": a_node()}, {"n1": a_node(NEW)})
    rising = on_its_way({}, new=InstanceStatus("warming"))
    early = advance(larger, step.desired, rising, step.state, rules(), after(5))
    assert early.made == ("new",)
    assert early.state.pending["new"].is_new
    assert advance(larger, step.desired, rising, step.state, rules(), after(15)).made == ()


# Jobs


def test_a_job_makes_room_before_the_service_comes() -> None:
    job = a_job("job", sm=80)
    step = first({"n1": a_node(job)}, {"n1": a_node(OLD)})
    assert step.made == ("job",)
    again = advance({"n1": a_node(OLD)}, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert again.made == ("old",)


def test_a_job_that_moves_goes_on_until_its_new_place_is_free_and_never_runs_twice() -> None:
    full = an_instance("full", "other", sm=90)
    told = {"n1": a_node(a_job("here")), "n2": a_node(full)}
    target = {"n2": a_node(a_job("there")), "n3": a_node(an_instance("full2", "other", sm=90))}
    step = first(told, target)
    made = [step.made]
    while step.changed:
        step = advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW)
        made.append(step.made)
    assert made == [("full2",), ("full",), ("here",), ("there",), ()]


def test_a_job_starts_after_the_services_of_its_gpu() -> None:
    step = first({"n1": a_node()}, {"n1": a_node(OLD, a_job("job"))})
    assert step.made == ("old", "job")


# Silence


def test_nothing_new_is_sent_to_a_silent_node_and_what_runs_there_does_not_count() -> None:
    told = {"n1": a_node(OLD), "n2": a_node(NEW)}
    silent = all_serve(told, silent=frozenset({"n2"}))
    step = advance({"n2": a_node(NEW)}, told, silent, RolloutState(), rules(), NOW)
    assert step.changed == {}
    step = advance({"n1": a_node(OLD)}, told, silent, RolloutState(), rules(), NOW)
    assert step.changed == {} and step.waiting[0].reason == "node_silent"


def test_a_lost_node_is_gone_and_what_it_had_is_told_to_end_when_it_is_back() -> None:
    told, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n2": a_node(NEW)}
    lost = all_serve(told, silent=frozenset({"n1"}), lost=frozenset({"n1"}))
    step = advance(target, told, lost, RolloutState(), rules(), NOW)
    assert step.changed == {"n1": a_node()}
    assert advance(target, step.desired, lost, step.state, rules(), NOW).done


def test_the_time_of_a_silent_node_does_not_count_against_a_step() -> None:
    target = {"n1": a_node(OLD)}
    step = first({"n1": a_node()}, target)
    silent = FleetStatus(silent=frozenset({"n1"}))
    waited = advance(target, step.desired, silent, step.state, rules(), after(3600))
    back = advance(target, step.desired, FleetStatus(), waited.state, rules(), after(3610))
    assert not back.stopped_reason


# Again and again


def test_the_same_question_twice_has_the_same_answer() -> None:
    told, target = {"n1": a_node(OLD)}, {"n2": a_node(NEW)}
    assert first(told, target) == first(told, target)


def test_nothing_is_told_when_all_is_as_it_shall_be() -> None:
    step = first({"n1": a_node(OLD)}, {"n1": a_node(OLD)})
    assert step.done and step.changed == {} and step.state == RolloutState()


def test_an_instance_in_two_places_is_refused() -> None:
    with pytest.raises(WrongTarget, match="instance old runs on n1/0 and is wanted on n2/0"):
        first({"n1": a_node(OLD)}, {"n2": a_node(OLD)})
