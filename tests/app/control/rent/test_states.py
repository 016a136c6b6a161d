"""The life of a rented node under hooks that fail, are late, refuse and lie: nothing is paid for unseen."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from app.control.domain.events import Reason
from app.control.rent.states import (
    ENDED,
    HookAnswer,
    HookVerb,
    NodeSight,
    RentedNode,
    RentState,
    cancel,
    leave,
    look,
    next_call,
    take_answer,
)
from tests.support.soak import scaled

BEGAN = datetime(2027, 1, 4, tzinfo=UTC)
STEP = timedelta(seconds=10)
ALARMS = (Reason.RENT_LATE, Reason.RENT_STAYS)


def order() -> RentedNode:
    return RentedNode("burst-1-k", "burst-1", "burst", "cloud", RentState.ASKED, BEGAN, BEGAN, 240.0, 1800.0)


@dataclass
class LyingCloud:
    """A cloud with a hook that does by chance something else than it says."""

    random: random.Random
    is_honest: bool = False  # from some time on: what nobody can see must end once it is
    machines: dict[str, datetime] = field(default_factory=dict)  # by key: when it reports first
    calls: list[HookVerb] = field(default_factory=list)

    def call(self, row: RentedNode, verb: HookVerb, now: datetime) -> HookAnswer:
        self.calls.append(verb)
        fault = "" if self.is_honest else self.random.choice(["", "late", "fails", "refuses", "lies", "nonsense"])
        if verb == "rent":
            if fault == "refuses":
                return HookAnswer("refused", "no capacity")
            if fault == "lies":
                return HookAnswer("accepted")  # and no machine ever comes
            if fault != "fails" or self.random.random() < 0.5:
                starts = row.start_seconds * (8 if fault == "late" else 1)
                self.machines.setdefault(row.key, now + timedelta(seconds=starts))
            if fault == "nonsense":
                return HookAnswer("returned")
            return HookAnswer("failed", "it timed out") if fault == "fails" else HookAnswer("accepted")
        if fault == "lies":
            return HookAnswer("returned")  # and the machine stays
        if fault in ("fails", "nonsense", "refuses"):
            return HookAnswer("failed", "it timed out")
        self.machines.pop(row.key, None)
        return HookAnswer("returned")

    def sees(self, row: RentedNode, now: datetime, is_busy: bool) -> NodeSight:
        reports = row.key in self.machines and now >= self.machines[row.key]
        return NodeSight(reports, reports and is_busy)


def live(row: RentedNode, cloud: LyingCloud, until: datetime, leaves_at: datetime, now: datetime) -> RentedNode:
    """Lives through a node's life; what happens is checked at every step."""
    while now < until:
        now += STEP
        if row.state is RentState.JOINED and now >= leaves_at:
            row = leave(row, now)
        sight = cloud.sees(row, now, is_busy=now < leaves_at + timedelta(seconds=90))
        step = look(row, sight, now)
        if step.rented.state in ENDED and step.rented is not row:
            assert not sight.reports, "a node that reports may be paid for"
        row = step.rented
        verb = next_call(row, sight, now)
        if verb == "return":
            assert not sight.occupied, "nothing that serves is given back"
        if verb is not None:
            row = take_answer(row.note_call(now), verb, cloud.call(row, verb, now), now).rented
    return row


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(1000, 200, 40)))
def test_no_lying_hook_leaves_a_machine_that_reports_without_a_live_order(seed: int) -> None:
    chance = random.Random(seed)
    cloud, row = LyingCloud(chance), order()
    leaves_at = BEGAN + timedelta(minutes=chance.randrange(20, 120))
    row = live(row, cloud, BEGAN + timedelta(hours=3), leaves_at, BEGAN)
    cloud.is_honest = True
    row = live(row, cloud, BEGAN + timedelta(hours=5), leaves_at, BEGAN + timedelta(hours=3))
    assert row.state in ENDED
    assert not cloud.machines, "it is given back in the end, whatever its hook said before"


def test_an_order_is_asked_again_under_its_key_and_given_back_when_nothing_answers() -> None:
    row, now = order(), BEGAN
    for _ in range(3):
        assert next_call(row, NodeSight(), now) == "rent"
        row = take_answer(row.note_call(now), "rent", HookAnswer("failed", "timeout"), now).rented
        assert next_call(row, NodeSight(), now + timedelta(seconds=29)) is None
        now += timedelta(seconds=30)
    step = look(row, NodeSight(), BEGAN + timedelta(minutes=11))
    assert step.rented.state is RentState.LEAVING
    assert step.rented.paid_at == BEGAN, "from its first call on it may be paid for"
    assert step.reason is Reason.RENT_LATE
    assert next_call(step.rented, NodeSight(), now) == "return", "it may have been rented all the same"


def test_a_node_that_never_reports_is_late_and_then_given_back() -> None:
    row = take_answer(order().note_call(BEGAN), "rent", HookAnswer("accepted"), BEGAN).rented
    assert row.state is RentState.STARTING
    assert row.paid_at == BEGAN
    assert look(row, NodeSight(is_unknown=True), BEGAN + timedelta(seconds=721)).rented is row, "no node reports"
    late = look(row, NodeSight(), BEGAN + timedelta(seconds=721))
    assert (late.rented.state, late.reason) == (RentState.LATE, Reason.RENT_LATE)
    joined = look(late.rented, NodeSight(reports=True), BEGAN + timedelta(seconds=900))
    assert joined.rented.state is RentState.JOINED
    given_up = look(late.rented, NodeSight(), BEGAN + timedelta(seconds=1500))
    assert given_up.rented.state is RentState.LEAVING


def test_a_node_that_should_be_gone_and_reports_is_named_and_its_hook_called_again() -> None:
    row = leave(look(order(), NodeSight(reports=True), BEGAN).rented, BEGAN)
    assert next_call(row, NodeSight(True, occupied=True), BEGAN) is None, "it is emptied first"
    row = take_answer(row.note_call(BEGAN), "return", HookAnswer("returned"), BEGAN).rented
    later = BEGAN + timedelta(minutes=6)
    step = look(row, NodeSight(reports=True), later)
    assert step.reason is Reason.RENT_STAYS
    assert next_call(step.rented, NodeSight(reports=True), later) == "return"
    assert look(row, NodeSight(), BEGAN + timedelta(minutes=4)).rented is row, "it may be silent for a moment"
    assert look(row, NodeSight(is_unknown=True), later).rented is row, "in an outage silence proves nothing"
    gone = look(row, NodeSight(), later).rented
    assert (gone.state, gone.ended_at) == (RentState.GONE, BEGAN), "it was paid for until its hook said so"
    back = look(gone, NodeSight(reports=True), later)
    assert (back.rented.state, back.reason) == (RentState.LEAVING, Reason.RENT_STAYS)


def test_a_node_that_its_cloud_took_back_is_given_back_and_no_longer_counts_as_rented() -> None:
    row = look(order(), NodeSight(reports=True), BEGAN).rented
    assert look(row, NodeSight(), BEGAN).rented.state is RentState.JOINED, "it may report again"
    step = look(row, NodeSight(reclaimed=True), BEGAN)
    assert (step.rented.state, step.reason) == (RentState.LEAVING, Reason.RENT_LEAVING)
    assert next_call(step.rented, NodeSight(reclaimed=True), BEGAN) == "return"


def test_an_order_for_which_no_hook_was_called_is_not_asked_for_later() -> None:
    step = look(order(), NodeSight(), BEGAN + timedelta(minutes=11))
    assert (step.rented.state, step.reason) == (RentState.REFUSED, Reason.RENT_CANCELLED)
    assert step.rented.paid_at is None


def test_what_is_wanted_no_longer_is_given_back_if_its_hook_may_have_rented_it() -> None:
    assert cancel(order(), BEGAN, "why").state is RentState.REFUSED
    assert cancel(order().note_call(BEGAN), BEGAN, "why").state is RentState.LEAVING


def test_a_dry_run_gives_nothing_back() -> None:
    row = leave(look(order(), NodeSight(reports=True), BEGAN).rented, BEGAN).note_call(BEGAN)
    step = take_answer(row, "return", HookAnswer("tried", "a dry run: it would give back"), BEGAN)
    assert (step.rented.returned, step.reason) == (False, Reason.RENT_HOOK_FAILED)


def test_a_refused_order_ends_and_a_dry_run_rents_nothing() -> None:
    refused = take_answer(order(), "rent", HookAnswer("refused", "no capacity"), BEGAN)
    assert (refused.rented.state, refused.reason) == (RentState.REFUSED, Reason.RENT_REFUSED)
    tried = take_answer(order(), "rent", HookAnswer("tried", "would rent"), BEGAN)
    assert (tried.rented.state, tried.reason) == (RentState.REFUSED, Reason.RENT_TRIED)
    assert tried.rented.paid_at is None
