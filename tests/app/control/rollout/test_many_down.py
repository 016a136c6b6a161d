"""While much is down at once nothing moves; then a part each minute, until all of it has moved."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import pairwise

import msgspec

from agents.contract.assignments import AssignedInstance
from app.control.domain.events import Reason
from app.control.domain.failures import PlaceFailure
from app.control.domain.snapshot import SILENT_SECONDS
from app.control.rollout.failing.many_down import HELD_SECONDS, PAUSE_SECONDS, TURNS
from app.control.rollout.rules import RolloutNotice
from tests.app.control.rollout.fleets import a_node, an_instance
from tests.app.control.rollout.test_falls import EXITED, NOW, QUIET, A, DoneRollout

LOST_AFTER_SECONDS = 120.0


def many(count: int) -> DoneRollout:
    copies = {f"i{number}": an_instance(f"i{number}", f"s{number}", gpu=number) for number in range(count)}
    return DoneRollout({f"n{node}": a_node(*list(copies.values())[node - 1 :: 3]) for node in (1, 2, 3)})


def test_if_much_goes_down_at_once_nothing_moves_and_one_alarm_says_what_is_shared() -> None:
    rollout = many(9)
    down = {f"i{number}": EXITED for number in range(4)}
    told: list[RolloutNotice] = []
    while rollout.seconds < HELD_SECONDS / 2:
        step = rollout.look(5, down)
        assert not step.stopped_reason
        told += step.notices
    (alarm,) = told
    assert alarm.reason is Reason.MANY_DOWN
    assert alarm.message == (
        "4 of 9 copies of shop went down within a minute, and nothing of shop moves; "
        "all of them share template serve, reason exited"
    )
    rollout.look(5, QUIET)
    assert not rollout.state.held


def test_after_a_while_one_copy_after_the_other_moves_although_much_is_down() -> None:
    rollout = many(9)
    moved: list[float] = []
    while len(moved) < 4:
        step = rollout.look(5, {f"i{number}": EXITED for number in range(len(moved), 8)})
        if step.stopped_reason:
            assert len(step.notices) == 1
            moved.append(rollout.seconds)
    assert moved[0] >= HELD_SECONDS
    assert all(later - earlier >= PAUSE_SECONDS for earlier, later in pairwise(moved))


def test_jobs_that_fail_delay_no_move_while_much_is_down() -> None:
    rollout = many(9)
    while rollout.seconds < HELD_SECONDS + 2 * PAUSE_SECONDS:
        failed = PlaceFailure("shop/train", None, NOW.timestamp() + rollout.seconds)
        rollout.state = replace(rollout.state, failures=(*rollout.state.failures, failed))
        rollout.look(5, {f"i{number}": EXITED for number in range(8)})
    assert [failure.place for failure in rollout.state.failures if failure.place]


def test_what_does_not_move_keeps_nobody_else_waiting_while_much_is_down() -> None:
    rollout = many(9)
    owners = {line.id: line.owner for wanted in rollout.assigned.values() for line in wanted.instances}
    rollout.rules = replace(rollout.rules, by_hand={owners["i0"]: "its mode is approve"})
    moved: set[str] = set()
    while rollout.seconds < HELD_SECONDS + 10 * PAUSE_SECONDS:
        moved |= {failure.owner for failure in rollout.look(5, {f"i{n}": EXITED for n in range(6)}).state.failures}
    assert moved == {owners[f"i{n}"] for n in range(1, 6)}


def test_a_third_of_the_copies_moves_at_once() -> None:
    rollout = many(9)
    step, _ = rollout.until_it_falls({f"i{number}": EXITED for number in range(3)})
    assert len(step.state.failures) == 3


def test_what_goes_down_on_one_node_alone_moves_however_much_it_is() -> None:
    copies = [an_instance(f"i{number}", f"s{number}", gpu=number) for number in range(4)]
    rollout = DoneRollout({"n1": a_node(*copies), "n2": a_node(A)})
    step, _ = rollout.until_it_falls({copy.id: EXITED for copy in copies})
    assert len(step.state.failures) == 4
    assert not step.state.held


def of_tenant(tenant: str, id_: str, service: str, **more: object) -> AssignedInstance:
    return msgspec.structs.replace(an_instance(id_, service, **more), tenant=tenant)  # type: ignore[arg-type]


def spread(*copies: AssignedInstance, nodes: int = 3) -> DoneRollout:
    """Returns a fleet with these copies, one after the other on its nodes."""
    return DoneRollout({f"n{node}": a_node(*copies[node - 1 :: nodes]) for node in range(1, nodes + 1)})


def test_what_is_down_of_one_tenant_holds_no_other_tenants_moves() -> None:
    theirs = [of_tenant("shop", f"s{number}", f"s{number}", gpu=number) for number in range(8)]
    ours = of_tenant("lab", "ours", "ours", gpu=9)
    rollout = spread(*theirs, ours)
    told: list[RolloutNotice] = []
    while rollout.seconds < HELD_SECONDS / 2:
        told += rollout.look(5, {copy.id: EXITED for copy in (*theirs, ours)}).notices
    assert [(notice.reason, notice.owner, notice.tenant) for notice in told] == [
        (Reason.MANY_DOWN, "", "shop"), (Reason.INSTANCE_DOWN, "lab/ours", ""),
    ]  # fmt: skip
    assert told[0].message.startswith("8 of 8 copies of shop went down within a minute, and nothing of shop moves")
    assert {failure.owner for failure in rollout.state.failures} == {"lab/ours"}


def test_what_is_down_of_several_tenants_holds_all_moves_until_all_have_moved() -> None:
    copies = [of_tenant(f"t{number % 3}", f"i{number}", f"s{number}", gpu=number) for number in range(20)]
    rollout = spread(*copies)
    (alarm,) = rollout.look(1, {copy.id: EXITED for copy in copies}).notices
    assert (alarm.reason, alarm.tenant) == (Reason.MANY_DOWN, "")
    assert alarm.message.startswith("20 of 20 copies went down within a minute, and nothing moves; all of them share")
    moved: dict[str, float] = {}
    while len(moved) < len(copies):
        step = rollout.look(5, {copy.id: EXITED for copy in copies if copy.owner not in moved})
        moved |= {notice.owner: rollout.seconds for notice in step.notices if notice.reason is Reason.INSTANCE_DOWN}
    assert min(moved.values()) >= HELD_SECONDS
    assert max(moved.values()) <= HELD_SECONDS + TURNS * (PAUSE_SECONDS + 5)


def test_a_service_whose_copies_all_go_down_holds_nothing_and_is_the_suspect() -> None:
    broken = [an_instance(f"b{number}", "broken", gpu=number) for number in range(6)]
    rollout = spread(*broken, an_instance("other", "other", gpu=7), an_instance("steady", "steady", gpu=8))
    told: list[RolloutNotice] = []
    for _ in range(10):
        step = rollout.look(5, {copy.id: EXITED for copy in broken} | {"other": EXITED})
        told += step.notices
    assert {(notice.reason, notice.owner) for notice in told} == {
        (Reason.SERVICE_SUSPECT, "shop/broken"), (Reason.INSTANCE_DOWN, "shop/other"),
    }  # fmt: skip
    assert not rollout.state.held


def test_the_alarm_names_the_folder_that_all_of_them_read() -> None:
    copies = [
        an_instance(f"i{number}", f"s{number}", gpu=number, args={"file": f"/models/s{number}.onnx"})
        for number in range(6)
    ]
    (alarm,) = spread(*copies).look(1, {copy.id: EXITED for copy in copies}).notices
    assert "folder /models" in alarm.message


class DarkRollout:
    """A fleet of nine nodes with a copy each, some of which fall silent at once."""

    def __init__(self, dark: Collection[str]) -> None:
        copies = [an_instance(f"i{number}", f"s{number}", priority=float(number)) for number in range(1, 10)]
        self.rollout, self.dark = spread(*copies, nodes=9), set(dark)
        self.notices: list[RolloutNotice] = []
        self.held: list[tuple[float, tuple[str, ...]]] = []

    def look(self, seconds: float, statuses: Mapping[str, object] = QUIET) -> None:
        self.rollout.seconds += seconds
        now = NOW.timestamp() + self.rollout.seconds
        silent = frozenset(self.dark) if self.rollout.seconds > SILENT_SECONDS else frozenset()
        gone = silent if self.rollout.seconds > LOST_AFTER_SECONDS else frozenset()
        reported = {f"n{number}": now for number in range(1, 10)} | dict.fromkeys(self.dark, NOW.timestamp())
        step = self.rollout.look(
            0, statuses, silent=silent, lost=gone - set(self.rollout.state.held_nodes), reported_at=reported  # type: ignore[arg-type]
        )  # fmt: skip
        self.notices += step.notices
        if not self.held or self.held[-1][1] != step.state.held_nodes:
            self.held.append((self.rollout.seconds, step.state.held_nodes))


def test_nodes_that_fall_silent_together_are_given_up_one_part_after_the_other_the_most_important_first() -> None:
    fleet = DarkRollout({"n1", "n2", "n3", "n4"})
    while fleet.rollout.seconds < HELD_SECONDS + TURNS * PAUSE_SECONDS:
        fleet.look(5)
    (alarm,) = fleet.notices
    assert alarm.message == (
        "4 of 9 nodes fell within a minute, and nothing moves: n1, n2, n3, n4; all of them share reason silence"
    )
    held = [nodes for _, nodes in fleet.held if nodes]
    assert held == [("n4", "n3", "n2", "n1"), ("n3", "n2", "n1"), ("n2", "n1"), ("n1",)]
    assert fleet.held[2][0] >= HELD_SECONDS
    assert not fleet.rollout.state.held, "what is left is a fleet of five nodes, and its moves wait no longer"


def test_a_third_of_the_nodes_is_lost_as_any_other() -> None:
    fleet = DarkRollout({"n1", "n2", "n3"})
    while fleet.rollout.seconds < 2 * LOST_AFTER_SECONDS:
        fleet.look(5)
    assert fleet.notices == []
    assert [nodes for _, nodes in fleet.held] == [()]


def test_nodes_that_come_back_end_the_wait_and_meanwhile_no_copy_moves() -> None:
    fleet = DarkRollout({"n1", "n2", "n3", "n4"})
    while fleet.rollout.seconds < 3 * LOST_AFTER_SECONDS:
        fleet.look(5, {"i9": EXITED})
    assert [notice.reason for notice in fleet.notices] == [Reason.INSTANCE_DOWN, Reason.MANY_DOWN]
    fleet.dark = set()
    fleet.look(5)
    assert not fleet.rollout.state.held
    assert not fleet.rollout.state.held_nodes
