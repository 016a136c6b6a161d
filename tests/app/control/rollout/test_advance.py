"""The changes that may be assigned now, case by case."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.contract.assignments import AssignedGpu, Frame
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.rollout.changes import WrongTarget
from app.control.rollout.rules import Advance, RolloutRules, RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, advance, all_serve, an_instance, replace_struct, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, NEW = an_instance("old"), an_instance("new")


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def first(assigned: Desired, target: Desired, the_rules: RolloutRules | None = None, **statuses: object) -> Advance:
    return advance(target, assigned, all_serve(assigned, **statuses), RolloutState(), the_rules or rules(), NOW)


def ids(desired: Desired, node: str) -> list[str]:
    return [instance.id for instance in desired[node].instances]


def on_its_way(assigned: Desired, **statuses: InstanceStatus) -> FleetStatus:
    """Returns a status in which all instances serve, except for these."""
    observed = all_serve(assigned)
    return replace(observed, instances={**observed.instances, **statuses})


# Make before break


def test_a_move_starts_the_new_copy_and_leaves_the_old_copy_alone() -> None:
    step = first({"n1": a_node(OLD)}, {"n2": a_node(NEW)})
    assert ids(step.desired, "n1") == ["old"]
    assert ids(step.desired, "n2") == ["new"]
    assert [change.reason for change in step.waiting] == ["capacity_at_risk"]


def test_the_old_copy_is_removed_when_the_new_copy_serves() -> None:
    assigned = {"n1": a_node(OLD), "n2": a_node(NEW)}
    target = {"n2": a_node(NEW)}
    early = RolloutState(pending=first({"n1": a_node(OLD)}, target).state.pending)
    starting = on_its_way(assigned, new=InstanceStatus("warming"))
    assert ids(advance(target, assigned, starting, early, rules(), NOW).desired, "n1") == ["old"]
    step = advance(target, assigned, all_serve(assigned), early, rules(), NOW)
    assert ids(step.desired, "n1") == []
    assert not step.done  # it has still to go


def test_a_starting_copy_that_another_plan_moves_goes_on_while_its_service_lacks_capacity() -> None:
    both, elsewhere = {"n1": a_node(OLD), "n2": a_node(NEW)}, an_instance("elsewhere")
    begun = first({"n1": a_node(OLD)}, both)
    starting = on_its_way(begun.desired, new=InstanceStatus("warming"))
    lacking = {"n1": a_node(OLD), "n3": a_node(elsewhere)}
    step = advance(lacking, begun.desired, starting, begun.state, rules(), after(1))
    assert step.made == ("elsewhere",)
    assert [(change.instance, change.reason) for change in step.waiting] == [("new", "capacity_at_risk")]
    still = on_its_way(step.desired, elsewhere=InstanceStatus("warming"))
    assert ids(advance(lacking, step.desired, still, step.state, rules(), after(2)).desired, "n2") == ["new"]
    there = advance(lacking, step.desired, all_serve(step.desired), step.state, rules(), after(3))
    assert ids(there.desired, "n2") == []
    served = advance({"n1": a_node(OLD)}, begun.desired, starting, begun.state, rules(), after(1))
    assert ids(served.desired, "n2") == [], "its service lacks nothing any more"
    ailing = replace(starting, ailing=frozenset({("n2", 0)}))
    assert ids(advance(lacking, begun.desired, ailing, begun.state, rules(), after(1)).desired, "n2") == []


def test_a_starting_copy_gives_way_to_a_service_without_any_copy() -> None:
    begun = first({"n1": a_node(OLD)}, {"n1": a_node(OLD), "n2": a_node(replace_struct(NEW, sm_percent=80.0))})
    starting = on_its_way(begun.desired, new=InstanceStatus("warming"))
    target = {"n1": a_node(OLD), "n2": a_node(an_instance("vital", "vital")), "n3": a_node(an_instance("elsewhere"))}
    step = advance(target, begun.desired, starting, begun.state, rules(), after(1))
    assert ids(step.desired, "n2") == [], "it has to be gone before another copy takes its room"


def test_a_copy_that_the_gateway_does_not_know_yet_carries_nothing() -> None:
    assigned = {"n1": a_node(OLD), "n2": a_node(NEW)}
    step = advance(
        {"n2": a_node(NEW)}, assigned, on_its_way(assigned, new=InstanceStatus("ready")), RolloutState(), rules(), NOW
    )
    assert ids(step.desired, "n1") == ["old"]


def test_the_last_copy_stays_while_its_restarted_agent_has_not_confirmed_it() -> None:
    assigned = {"n1": a_node(OLD), "n2": a_node(NEW)}
    target = {"n2": a_node(NEW)}
    early = RolloutState(pending=first({"n1": a_node(OLD)}, target).state.pending)
    unconfirmed = on_its_way(assigned, old=InstanceStatus("ready", routed=False), new=InstanceStatus("starting"))
    step = advance(target, assigned, unconfirmed, early, rules(), NOW)
    assert ids(step.desired, "n1") == ["old"]
    assert [change.reason for change in step.waiting] == ["capacity_at_risk"]
    failed = on_its_way(assigned, old=InstanceStatus("starting"), new=InstanceStatus("starting"))
    assert ids(advance(target, assigned, failed, early, rules(), NOW).desired, "n1") == []
    deleted = {"n1": a_node(), "n2": a_node()}
    assert ids(advance(deleted, assigned, unconfirmed, early, rules(), NOW).desired, "n1") == []


def test_a_rollout_is_done_when_leaving_copies_are_gone() -> None:
    assigned, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n2": a_node(NEW)}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), rules(), NOW)
    draining = on_its_way(step.desired, old=InstanceStatus("draining"))
    assert not advance(target, step.desired, draining, step.state, rules(), NOW).done
    assert advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW).done


def test_a_rollout_does_not_wait_for_ever_for_a_copy_that_never_ends() -> None:
    assigned, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n2": a_node(NEW)}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), rules(), NOW)
    hangs = on_its_way(step.desired, old=InstanceStatus("ending"))
    patience = rules().leaving_seconds
    assert not advance(target, step.desired, hangs, step.state, rules(), after(patience - 1)).done
    late = advance(target, step.desired, hangs, step.state, rules(), after(patience))
    assert late.done
    assert "old" in late.state.leaving, "it keeps its place"


def test_a_leaving_copy_holds_its_place_until_its_node_reports_it_gone() -> None:
    big = an_instance("big", "other", memory=14)
    assigned, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n1": a_node(big), "n2": a_node(NEW)}
    step = advance(target, assigned, all_serve(assigned), RolloutState(), rules(), NOW)
    assert ids(step.desired, "n1") == []
    unheard = all_serve(step.desired, assigned_generations={"n1": 7}, generations={"n1": 6})
    assert ids(advance(target, step.desired, unheard, step.state, rules(), NOW).desired, "n1") == []
    observed = all_serve(step.desired, assigned_generations={"n1": 7}, generations={"n1": 7})
    assert ids(advance(target, step.desired, observed, step.state, rules(), NOW).desired, "n1") == ["big"]


def test_a_smaller_shape_is_assigned_only_when_others_carry_the_difference() -> None:
    small = replace_struct(OLD, sm_percent=20, rate_per_second=40)
    assigned, target = {"n1": a_node(OLD)}, {"n1": a_node(small), "n2": a_node(replace_struct(NEW, rate_per_second=60))}
    step = first(assigned, target)
    assert step.made == ("new",)
    later = advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert later.made == ("old",)


def test_nothing_is_taken_away_while_too_little_is_carried() -> None:
    assigned = {"n1": a_node(OLD)}
    step = first(assigned, {"n2": a_node(replace_struct(NEW, rate_per_second=300)), "n3": a_node()})
    assert ids(step.desired, "n1") == ["old"]


def test_least_instances_are_kept_although_fewer_would_carry_the_rate() -> None:
    two = {"n1": a_node(OLD), "n2": a_node(NEW)}
    target = {"n2": a_node(NEW), "n3": a_node(an_instance("third", rate=1))}
    assigned = {**two, "n3": a_node()}
    step = first(assigned, target, rules(min_instances={"shop/search": 2}))
    assert ids(step.desired, "n1") == ["old"]


def test_a_service_that_is_deleted_ends_at_once() -> None:
    assert first({"n1": a_node(OLD)}, {}).made == ("old",)


# Weights and clocks


def test_weights_change_at_once() -> None:
    assigned = {"n1": a_node(OLD), "n2": a_node(NEW)}
    lower, higher = replace_struct(OLD, rate_per_second=50), replace_struct(NEW, rate_per_second=150)
    step = first(assigned, {"n1": a_node(lower), "n2": a_node(higher)})
    assert step.made == ("new",)
    assert advance({"n1": a_node(lower), "n2": a_node(higher)}, step.desired, all_serve(step.desired), step.state,
                   rules(), NOW).made == ("old",)  # fmt: skip


def test_a_higher_clock_goes_before_the_rate_that_needs_it() -> None:
    more = replace_struct(OLD, rate_per_second=150)
    assigned, target = {"n1": a_node(OLD, clocks={0: 900})}, {"n1": a_node(more, clocks={0: 1530})}
    step = first(assigned, target)
    assert step.made == ()
    assert step.desired["n1"].gpus == target["n1"].gpus
    lagging = all_serve(step.desired, assigned_generations={"n1": 2}, generations={"n1": 1})
    assert advance(target, step.desired, lagging, step.state, rules(), NOW).made == ()
    there = all_serve(step.desired, assigned_generations={"n1": 2}, generations={"n1": 2})
    assert advance(target, step.desired, there, step.state, rules(), NOW).made == ("old",)


def test_a_lower_clock_waits_until_nothing_needs_the_higher() -> None:
    assigned = {"n1": a_node(OLD, clocks={0: 1530})}
    less = replace_struct(OLD, rate_per_second=50)
    rest = replace_struct(NEW, rate_per_second=50)
    target = {"n1": a_node(less, clocks={0: 900}), "n2": a_node(rest, clocks={0: 900})}
    step = first(assigned, target)
    assert step.desired["n1"].gpus[0].clock_mhz == Frame(1530, 600, 1530)
    step = advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert step.desired["n1"].instances == (less,)
    assert step.desired["n1"].gpus == target["n1"].gpus


def test_a_cap_that_falls_applies_at_once_because_it_is_the_operators() -> None:
    more = replace_struct(OLD, rate_per_second=150)
    gpu = AssignedGpu(0, Frame(1530, 600, 1530), 250.0)
    step = first({"n1": a_node(OLD, clocks={0: 900})}, {"n1": replace(a_node(more), gpus=(gpu,))})
    assert step.desired["n1"].gpus == (gpu,)


# Room


def test_two_hand_overs_on_one_gpu_go_one_after_the_other() -> None:
    mine, other = an_instance("mine", "a", sm=30), an_instance("other", "b", sm=30)
    assigned = {"n1": a_node(mine, other)}
    target = {"n1": a_node(replace_struct(mine, sm_percent=40.0), replace_struct(other, sm_percent=40.0))}
    step = first(assigned, target)
    assert step.made == ("mine",)
    assert step.waiting[0].reason == "hand_over_under_way"
    two_copies = on_its_way(step.desired, mine=InstanceStatus("ready", True, sm_percent=40, memory_gib=4, copies=2))
    assert advance(target, step.desired, two_copies, step.state, rules(), NOW).made == ()
    assert advance(target, step.desired, all_serve(step.desired), step.state, rules(), NOW).made == ("other",)


def test_strict_hand_overs_need_room_for_both_copies() -> None:
    mine = an_instance("mine", sm=60)
    assigned = {"n1": a_node(mine, handover="strict")}
    target = {"n1": a_node(replace_struct(mine, sm_percent=50.0), handover="strict")}
    step = first(assigned, target)
    assert step.made == ()
    assert step.waiting[0].message == "needs 10 SM% more next to the copy it replaces"


def test_a_dedicated_instance_waits_until_it_has_its_gpu_alone() -> None:
    alone = an_instance("alone", "vip", dedicated=True)
    step = first({"n1": a_node(OLD)}, {"n1": a_node(alone), "n2": a_node(NEW)})
    assert step.made == ("new",)
    assert {change.instance: change.reason for change in step.waiting}["alone"] == "dedicated"


def test_an_instance_that_has_just_begun_to_start_gets_its_new_shape_at_once() -> None:
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
    later = advance({"n1": a_node(OLD)}, step.desired, all_serve(step.desired), step.state, rules(), NOW)
    assert later.made == ("old",)


def test_a_moving_job_runs_until_its_new_place_is_free_and_never_twice() -> None:
    full = an_instance("full", "other", sm=90)
    assigned = {"n1": a_node(a_job("here")), "n2": a_node(full)}
    target = {"n2": a_node(a_job("there")), "n3": a_node(an_instance("full2", "other", sm=90))}
    step = first(assigned, target)
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
    assigned = {"n1": a_node(OLD), "n2": a_node(NEW)}
    silent = all_serve(assigned, silent=frozenset({"n2"}))
    step = advance({"n2": a_node(NEW)}, assigned, silent, RolloutState(), rules(), NOW)
    assert step.changed == {}
    step = advance({"n1": a_node(OLD)}, assigned, silent, RolloutState(), rules(), NOW)
    assert step.changed == {} and step.waiting[0].reason == "node_silent"


def test_a_lost_node_counts_as_gone_and_its_copies_end_when_it_is_back() -> None:
    assigned, target = {"n1": a_node(OLD), "n2": a_node(NEW)}, {"n2": a_node(NEW)}
    lost = all_serve(assigned, silent=frozenset({"n1"}), lost=frozenset({"n1"}))
    step = advance(target, assigned, lost, RolloutState(), rules(), NOW)
    assert step.changed == {"n1": a_node()}
    assert advance(target, step.desired, lost, step.state, rules(), NOW).done


def test_the_time_of_a_silent_node_does_not_count_against_a_step() -> None:
    target = {"n1": a_node(OLD)}
    step = first({"n1": a_node()}, target)
    silent = FleetStatus(silent=frozenset({"n1"}), reported_at={"n1": after(5).timestamp()})
    waited = advance(target, step.desired, silent, step.state, rules(), after(3600))
    reports = FleetStatus(reported_at={"n1": after(3609).timestamp()})
    back = advance(target, step.desired, reports, waited.state, rules(), after(3610))
    assert not back.stopped_reason and not back.retried


# Repeated steps


def test_the_same_question_twice_has_the_same_answer() -> None:
    assigned, target = {"n1": a_node(OLD)}, {"n2": a_node(NEW)}
    assert first(assigned, target) == first(assigned, target)


def test_nothing_is_assigned_when_the_target_is_reached() -> None:
    step = first({"n1": a_node(OLD)}, {"n1": a_node(OLD)})
    assert step.done and step.changed == {} and step.state == RolloutState()


def test_an_instance_in_two_places_is_refused() -> None:
    with pytest.raises(WrongTarget, match="instance old runs on n1/0 and is wanted on n2/0"):
        first({"n1": a_node(OLD)}, {"n2": a_node(OLD)})
