"""A copy that is down after its rollout falls: it is taken from its place, and its service is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import msgspec

from app.control.domain.desired import Desired, InstanceStatus
from app.control.domain.events import Reason
from app.control.rollout.failing.suspects import STEADY_SECONDS
from app.control.rollout.life import restart_clocks
from app.control.rollout.rules import Advance, PendingStep, RolloutNotice, RolloutRules, RolloutState
from tests.app.control.rollout.fleets import a_job, a_node, advance, all_serve, an_instance, rules

NOW = datetime(2026, 1, 1, tzinfo=UTC)
A, B = an_instance("a"), an_instance("b", "other", gpu=1)
EXITED = InstanceStatus("", reason="exited", message="it exited by itself: no such file; failed 2 times")
STARTING = InstanceStatus("warming", rising="warming")
QUIET: Mapping[str, InstanceStatus] = {}


@dataclass
class DoneRollout:
    """A fleet whose rollout is done, second after second."""

    assigned: Desired
    rules: RolloutRules = field(default_factory=rules)
    state: RolloutState = field(default_factory=RolloutState)
    seconds: float = 0.0

    def look(self, seconds: float, statuses: Mapping[str, InstanceStatus], **more: object) -> Advance:
        """Returns the step after so many seconds, in which copies without a status of their own serve."""
        self.seconds += seconds
        served = all_serve(self.assigned, **more)
        observed = replace(served, instances={**served.instances, **statuses})
        now = NOW + timedelta(seconds=self.seconds)
        step = advance(self.assigned, self.assigned, observed, self.state, self.rules, now)
        self.assigned, self.state = step.desired, msgspec.convert(msgspec.to_builtins(step.state), RolloutState)
        return step

    def until_it_falls(self, statuses: Mapping[str, InstanceStatus], most: float = 100) -> tuple[Advance, float]:
        """Looks every second until a copy falls; returns that step and the seconds it took."""
        began = self.seconds
        while self.seconds - began < most:
            step = self.look(1, statuses)
            if step.stopped_reason:
                return step, self.seconds - began
        raise AssertionError("nothing falls")


def test_a_copy_that_is_down_for_long_enough_falls_and_its_service_is_told_why() -> None:
    rollout = DoneRollout({"n1": a_node(A, B)})
    step, seconds = rollout.until_it_falls({"a": EXITED})
    assert seconds == 1 + rollout.rules.down_seconds
    assert step.desired == {"n1": a_node(B)} == step.target
    assert step.state.leaving.keys() == {"a"}
    assert [(failure.owner, failure.place) for failure in step.state.failures] == [("shop/search", ("n1", 0))]
    (notice,) = step.notices
    assert (notice.reason, notice.owner) == (Reason.INSTANCE_DOWN, "shop/search")
    assert notice.message == (
        "a on n1/0 has been down for 20 s: exited: it exited by itself: no such file; failed 2 times"
    )


def test_a_copy_that_rises_again_has_the_time_of_a_start_and_one_that_is_routed_late_is_not_down() -> None:
    patient = rules(start_seconds={"m-search/fp16/v100": 20.0})
    _, seconds = DoneRollout({"n1": a_node(A)}, patient).until_it_falls({"a": STARTING}, most=200)
    assert seconds == 1 + patient.patience * 20
    waiting = DoneRollout({"n1": a_node(A)})
    for _ in range(50):
        assert not waiting.look(5, {"a": InstanceStatus("routing", rising="routing")}).stopped_reason


def test_a_copy_that_is_back_in_time_has_its_whole_time_again_unless_it_goes_down_again_and_again() -> None:
    rollout = DoneRollout({"n1": a_node(A)})
    for _ in range(3):
        rollout.look(10, {"a": EXITED})
        rollout.look(5, QUIET)
        assert not rollout.look(STEADY_SECONDS, QUIET).stopped_reason
    assert not rollout.state.down
    for _ in range(2):
        assert not rollout.look(5, {"a": EXITED}).stopped_reason
        assert not rollout.look(5, QUIET).stopped_reason
    step = rollout.look(5, {"a": EXITED})
    assert "went down 3 times" in step.message


def test_what_a_node_does_not_report_is_not_down() -> None:
    rollout = DoneRollout({"n1": a_node(A)})
    rollout.look(10, {"a": EXITED})
    for _ in range(5):
        assert not rollout.look(10, {"a": EXITED}, silent=frozenset({"n1"})).stopped_reason
    assert not rollout.look(10, {"a": EXITED}).stopped_reason, "its time begins again"
    rollout.state = restart_clocks(rollout.state, NOW.timestamp() + rollout.seconds)
    assert not rollout.look(15, {"a": EXITED}).stopped_reason
    assert rollout.look(15, {"a": EXITED}).stopped_reason


def test_jobs_failed_gpus_and_copies_in_a_step_are_left_to_those_who_follow_them() -> None:
    job = DoneRollout({"n1": a_node(a_job("j"), A)})
    for _ in range(5):
        assert not job.look(20, {"j": EXITED}).stopped_reason
    gpu = DoneRollout({"n1": a_node(A)})
    for _ in range(5):
        assert not gpu.look(20, {"a": EXITED}, ailing=frozenset({("n1", 0)})).stopped_reason


def test_a_service_that_falls_in_three_places_stays_and_is_named_once_with_its_last_output() -> None:
    rollout = DoneRollout({"n1": a_node(A), "n2": a_node(B)})
    for node, gpu in (("n1", 0), ("n2", 0)):
        copy = an_instance("a", gpu=gpu)
        rollout.assigned = {**rollout.assigned, node: a_node(copy)}
        step, _ = rollout.until_it_falls({"a": EXITED})
        assert not step.state.suspects
        rollout.look(1, {"a": InstanceStatus("gone")})
    rollout.assigned = {**rollout.assigned, "n3": a_node(A)}
    told: list[RolloutNotice] = []
    for _ in range(20):
        step = rollout.look(10, {"a": EXITED})
        assert not step.stopped_reason
        told += step.notices
    assert rollout.assigned["n3"] == a_node(A)
    (notice,) = told
    assert (notice.reason, notice.owner) == (Reason.SERVICE_SUSPECT, "shop/search")
    assert notice.message.startswith(
        "it failed on n1/0, n2/0, n3/0; the last: a on n3/0 has been down for 20 s: exited"
    )
    assert "no such file" in notice.message


def test_a_service_that_runs_well_between_its_falls_is_no_suspect() -> None:
    rollout = DoneRollout({"n1": a_node(A)})
    for node in ("n1", "n2", "n3", "n1"):
        rollout.assigned = {node: a_node(A)}
        rollout.look(1, QUIET)
        rollout.look(STEADY_SECONDS, QUIET)
        assert all(failure.is_past for failure in rollout.state.failures)
        step, _ = rollout.until_it_falls({"a": EXITED})
        assert not step.state.suspects
        rollout.look(1, {"a": InstanceStatus("gone")})


def test_a_step_that_begins_while_a_copy_is_down_neither_hides_that_nor_brings_its_old_shape_back() -> None:
    rollout = DoneRollout({"n1": a_node(A)})
    rollout.look(10, {"a": EXITED})
    larger = a_node(an_instance("a", sm=60))
    rollout.state = replace(rollout.state, pending={"a": PendingStep(NOW.timestamp() + 10, A)})
    rollout.assigned = {"n1": larger}
    step, seconds = rollout.until_it_falls({"a": EXITED})
    assert seconds < rollout.rules.down_seconds
    assert step.desired == {"n1": a_node()}
    assert not step.state.pending


def test_what_a_person_moves_stays_and_is_told_of_once() -> None:
    rollout = DoneRollout({"n1": a_node(A, B)}, rules(by_hand={"shop/search": "its mode is approve"}))
    told: list[RolloutNotice] = []
    for _ in range(10):
        step = rollout.look(10, {"a": EXITED})
        assert not step.stopped_reason
        told += step.notices
    (notice,) = told
    assert (notice.reason, notice.owner) == (Reason.INSTANCE_DOWN, "shop/search")
    assert notice.message.endswith("; it stays there, as its mode is approve")
