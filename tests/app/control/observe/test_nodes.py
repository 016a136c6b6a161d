"""The status of nodes: drained, under notice, silent or lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.snapshot import NodeStatus
from app.control.formulate.reserved_watts import RESERVED_SHARE
from app.control.observe.nodes import MOST_ANSWERS, Patience, node_statuses, reclaim_times
from app.store.fleet.cordons import ALL_GPUS, RECLAIM, Cordon
from app.store.fleet.planner_reads import ObservedNode, PartitionRequest

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
LOST_AFTER_SECONDS = 120.0
GPUS = {"gpus": [{"index": 0}, {"index": 1}]}


def status(silent_seconds: float, *cordons: Cordon) -> NodeStatus:
    patience = Patience(LOST_AFTER_SECONDS, reclaim_times(cordons), NOW)
    row = ObservedNode("n1", GPUS, NOW, 1, None)
    return node_statuses([row], {"n1": silent_seconds}, cordons, patience)["n1"]


def requested(
    now: list[int], past: dict[int, tuple[float, float]], since_minutes: float, silent_minutes: float = 0.0
) -> tuple[tuple[int, int], ...]:
    """Returns the requests of a node that asks now for as long; past ones have the minutes since, and the seconds."""
    heard = NOW - timedelta(minutes=silent_minutes)
    known = {
        gpu: PartitionRequest(NOW - timedelta(minutes=minutes), seconds) for gpu, (minutes, seconds) in past.items()
    }
    row = ObservedNode("n1", GPUS, heard, 1, None, now, known, NOW - timedelta(minutes=since_minutes))
    return node_statuses([row], {"n1": 0.0}, (), Patience(LOST_AFTER_SECONDS, {}, NOW))["n1"].partition_requests


def test_a_nodes_request_for_another_partition_counts_for_an_hour() -> None:
    assert requested([1], {0: (59, 30.0), 2: (60, 30.0)}, 0) == ((0, 1), (1, 1))
    assert requested([], {}, 30) == ()


def test_a_node_that_keeps_asking_is_due_another_answer_every_five_minutes() -> None:
    assert [requested([1], {}, minutes) for minutes in (4.9, 5.0, 11.0)] == [((1, 1),), ((1, 2),), ((1, 3),)]
    assert requested([1], {1: (20, 290.0)}, 1) == ((1, 2),)  # with a pause
    assert requested([1], {1: (61, 290.0)}, 1) == ((1, 1),)  # after a longer one it begins again


def test_a_silent_node_does_not_ask_and_its_request_ends_an_hour_after_its_last_report() -> None:
    assert requested([1], {}, 34, silent_minutes=30) == ((1, 1),)
    assert requested([1], {}, 64, silent_minutes=60) == ()


def test_a_request_that_never_ends_leaves_a_tenth_of_the_watts() -> None:
    assert requested([1], {}, 60_000) == requested([1], {}, 110) == ((1, MOST_ANSWERS),)
    left_share = (1 - RESERVED_SHARE) ** MOST_ANSWERS
    assert left_share == pytest.approx(0.1, abs=0.002)


def test_a_clock_that_was_set_back_gives_no_gpu_more_watts() -> None:
    assert requested([1], {}, -30) == ((1, 1),)


def notice(seconds: float) -> Cordon:
    return Cordon("n1", ALL_GPUS, RECLAIM, NOW + timedelta(seconds=seconds), "ops", NOW)


def test_a_node_under_notice_is_emptied_like_one_that_is_drained() -> None:
    drained = status(0.0, Cordon("n1", ALL_GPUS, "drain", None, "ops", NOW))
    reclaimed = status(0.0, notice(120))
    assert drained.draining_gpus == reclaimed.draining_gpus == (0, 1)
    assert drained.reclaimed_at is None
    assert reclaimed.reclaimed_at == NOW + timedelta(seconds=120)


@pytest.mark.parametrize(
    ("silent_seconds", "until_deadline", "state"),
    [
        (5.0, 60.0, "reporting"),
        (5.0, -60.0, "reporting"),
        (40.0, 1.0, "silent"),
        (40.0, 0.0, "lost"),
        (40.0, -60.0, "lost"),
        (130.0, 60.0, "lost"),
    ],
)
def test_once_the_deadline_has_passed_a_silent_node_is_lost(
    silent_seconds: float, until_deadline: float, state: str
) -> None:
    assert status(silent_seconds, notice(until_deadline)).state == state


def test_without_a_notice_a_silent_node_is_lost_after_the_usual_time() -> None:
    assert status(40.0).state == "silent"
    assert status(121.0).state == "lost"


def test_a_node_that_is_held_as_many_went_silent_at_once_is_not_lost() -> None:
    rows = [ObservedNode(name, GPUS, NOW, 1, None) for name in ("n1", "n2")]
    patience = Patience(LOST_AFTER_SECONDS, {}, NOW, held=("n1",))
    found = node_statuses(rows, {"n1": 1000.0, "n2": 1000.0}, (), patience)
    assert {name: status.state for name, status in found.items()} == {"n1": "silent", "n2": "lost"}


def test_a_node_that_was_silent_before_the_leader_began_is_not_planned_on() -> None:
    rows = [ObservedNode(name, GPUS, NOW, 1, None) for name in ("n1", "n2")]
    found = node_statuses(rows, {"n1": 1.0, "n2": 1.0}, (), Patience(120.0, {}, NOW), {"n2"})
    assert {name: status.state for name, status in found.items()} == {"n1": "reporting", "n2": "silent"}


def reported(reason: str, *gpus: dict[str, object]) -> NodeStatus:
    """The status of a node with these devices, and a difference from its declaration."""
    condition = {"type": "InventoryMismatch", "status": str(bool(reason)), "reason": reason}
    row = ObservedNode("n1", {"gpus": list(gpus), "conditions": [condition]}, NOW, 1, None)
    return node_statuses([row], {"n1": 0.0}, (), Patience(LOST_AFTER_SECONDS, {}, NOW))["n1"]


@pytest.mark.parametrize("why", [{"reason": "lost", "missing": True}, {"reason": "missing"}])
def test_a_missing_gpu_is_out_and_every_other_keeps_its_own_uuid(why: dict[str, object]) -> None:
    gone = {"index": 0, "uuid": "", **why}
    found = reported("Missing", {"index": 2, "uuid": "GPU-c"}, gone, {"index": 1, "uuid": "GPU-b"})
    assert (found.state, found.failed_gpus, found.missing_gpus) == ("reporting", (0,), (0,))


def test_a_node_with_other_devices_than_declared_is_a_mismatch() -> None:
    assert reported("Mismatch", {"index": 0, "uuid": "GPU-a"}).state == "mismatch"
