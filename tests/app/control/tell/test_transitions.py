"""A change between two looks is one event; an unchanged state is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from agents.contract.assignments import AssignedInstance
from app.control.decide.cordons import Drain
from app.control.domain.desired import NodeDesired
from app.control.domain.snapshot import Correction, LatencyFactor, NodeStatus, Snapshot
from app.control.tell.slo import SloStatus
from app.control.tell.transitions import find_burn_events, find_drain_events, find_fleet_events, find_gateway_events
from app.store.fleet.cordons import Cordon
from tests.support.corrections import slower

NODE = NodeStatus("node-1", "reporting")
BEFORE = Snapshot(at=datetime(2026, 3, 2, tzinfo=UTC), epoch=1, nodes={"node-1": NODE})


def reasons(**facts: object) -> list[str]:
    now = replace(BEFORE, nodes={"node-1": replace(NODE, **facts)})  # type: ignore[arg-type]
    return [event.reason for event in find_fleet_events(BEFORE, now)]


def test_what_stays_is_no_event() -> None:
    assert find_fleet_events(BEFORE, BEFORE) == []


@pytest.mark.parametrize(
    ("state", "reason"), [("silent", "node_silent"), ("lost", "node_lost"), ("mismatch", "node_mismatch")]
)
def test_a_node_that_turns_says_how_and_when_it_is_back(state: str, reason: str) -> None:
    away = replace(BEFORE, nodes={"node-1": replace(NODE, state=state)})  # type: ignore[arg-type]
    assert reasons(state=state) == [reason]
    assert [event.reason for event in find_fleet_events(away, BEFORE)] == ["node_back"]


@pytest.mark.parametrize(("seconds", "reason"), [(0, "node_reclaimed"), (-60, "node_reclaimed"), (60, "node_lost")])
def test_a_node_that_goes_as_its_cloud_had_announced_is_not_lost(seconds: float, reason: str) -> None:
    deadline = BEFORE.at + timedelta(seconds=seconds)
    assert reasons(state="lost", reclaimed_at=deadline) == [reason]
    assert reasons(state="silent", reclaimed_at=deadline) == ["node_silent"]


def test_a_node_that_reports_for_the_first_time_joined() -> None:
    assert [node.reason for node in find_fleet_events(replace(BEFORE, nodes={}), BEFORE)] == ["node_joined"]
    never = replace(BEFORE, nodes={"node-1": replace(NODE, state="never")})
    assert [event.reason for event in find_fleet_events(never, BEFORE)] == ["node_joined"]
    assert find_fleet_events(replace(BEFORE, nodes={}), never) == []


def test_each_gpu_that_fails_and_comes_back_has_its_own_event() -> None:
    failed = replace(BEFORE, nodes={"node-1": replace(NODE, failed_gpus=(0, 2))})
    events_found = find_fleet_events(BEFORE, failed)
    assert [(event.reason, event.about) for event in events_found] == [("gpu_failed", "0"), ("gpu_failed", "2")]
    assert len({event.fingerprint for event in events_found}) == 2
    assert [event.reason for event in find_fleet_events(failed, BEFORE)] == ["gpu_back", "gpu_back"]


def test_a_drain_says_how_much_is_to_leave() -> None:
    in_force = {"node-1": NodeDesired(tuple(AssignedInstance(f"i{gpu}", gpu) for gpu in (0, 1, 1)))}
    moved = replace(BEFORE, nodes={"node-1": replace(NODE, draining_gpus=(1,))})
    before = replace(BEFORE, in_force=in_force)
    assert [event.message for event in find_fleet_events(before, moved)] == ["2 instances and jobs have to leave"]
    swapped = {"node-1": replace(in_force["node-1"], swapped=(AssignedInstance("job", 1, job="train"),))}
    with_job = replace(before, in_force=swapped)
    assert [event.message for event in find_fleet_events(with_job, moved)] == ["3 instances and jobs have to leave"]


def test_a_correction_that_moved_is_an_event_and_one_at_its_end_an_alarm() -> None:
    def events_found(before: float, now: float) -> list[str]:
        first, second = (replace(BEFORE, corrections={"m/v/big": slower(factor)}) for factor in (before, now))
        return [event.reason for event in find_fleet_events(first, second)]

    assert events_found(1.0, 1.04) == []
    assert events_found(1.0, 1.1) == ["profile_corrected"]
    assert events_found(1.4, 1.5) == ["profile_wrong"]
    assert events_found(1.5, 1.5) == []


def test_a_place_that_is_too_slow_is_an_alarm_though_another_is_much_faster_than_its_draft_said() -> None:
    faster = LatencyFactor(1, 100, 0.5)
    first, second = (
        replace(BEFORE, corrections={"m/v/big": Correction((faster, LatencyFactor(8, 100, factor)))})
        for factor in (1.2, 1.48)
    )
    (event,) = find_fleet_events(first, second)
    assert event.reason == "profile_wrong" and "1.48 times" in event.message and "at batch 8" in event.message
    assert find_fleet_events(second, second) == []


def test_a_service_alarms_when_it_begins_to_burn() -> None:
    fast = {"shop/search": SloStatus(alarm="fast")}
    assert [event.reason for event in find_burn_events({}, fast)] == ["burn_fast"]
    assert find_burn_events(fast, fast) == []
    assert [event.severity for event in find_burn_events(fast, {"shop/search": SloStatus(alarm="slow")})] == ["warning"]


def test_a_gateway_that_falls_silent_and_one_that_is_back_are_events() -> None:
    assert find_gateway_events({}, {"edge": 1.0}) == []
    assert [event.reason for event in find_gateway_events({"edge": 1.0}, {"edge": 31.0})] == ["gateway_silent"]
    assert find_gateway_events({"edge": 31.0}, {"edge": 61.0}) == []
    assert [event.reason for event in find_gateway_events({"edge": 61.0}, {"edge": 0.5})] == ["gateway_back"]


def test_a_finished_and_a_late_drain_are_each_reported_once() -> None:
    cordon = Cordon("n1", 0, "drain", BEFORE.at, "ops", BEFORE.at)
    full, late = (Drain(cordon, ("shop/a",), is_late, is_under_way=False) for is_late in (False, True))
    done = Drain(cordon, (), is_late=False, is_under_way=False)
    assert find_drain_events([], [full]) == find_drain_events([late], [late]) == find_drain_events([done], [done]) == []
    (stuck,), (through,) = find_drain_events([full], [late]), find_drain_events([late], [done])
    assert (stuck.reason, stuck.message) == ("drain_stuck", "shop/a cannot leave")
    assert (through.reason, through.name, through.about) == ("drain_done", "n1", "0")
    (slow,) = find_drain_events([], [Drain(cordon, (), is_late=True, is_under_way=True)])
    assert (slow.reason, slow.message) == (
        "drain_stuck", "the deadline has passed while the rollout that empties it is still running",
    )  # fmt: skip
