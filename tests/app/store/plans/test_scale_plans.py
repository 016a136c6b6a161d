"""Scale plans in Postgres: what is recorded, what stays of it, and which write may begin."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import Connection, text

from app.control.record.scale_store import ScaleStore
from app.store.plans import scale_pause, scale_plans
from app.store.plans.scale_rows import ScaleDraft, ScalePlan, ScaleState
from tests.support.patience import until
from tests.support.scaling import BEGAN, ScalerStore, draft


@pytest.fixture
def store(database_url: str) -> Iterator[ScalerStore]:
    made = ScalerStore(database_url)
    yield made
    made.database.close()


def states(plan: ScalePlan) -> list[str]:
    return [row.state.value for row in plan.rows]


@pytest.mark.parametrize(
    ("made", "state"),
    [
        (draft(5, mode="advisory"), "advised"),
        (draft(5, mode="approve"), "proposed"),
        (draft(5), "approved"),
        (draft(4), "steady"),
        (draft(None), "steady"),
        (draft(5, hold="HPA shop/ranker owns it"), "held"),
    ],
)
def test_a_row_begins_in_the_state_that_its_mode_allows(store: ScalerStore, made: ScaleDraft, state: str) -> None:
    assert states(store.record(store.lead("a"), made)) == [state]


def test_what_stays_the_same_is_confirmed_and_what_changes_is_a_newer_plan(store: ScalerStore) -> None:
    epoch = store.lead("a")
    first = store.record(epoch, draft(5, mode="approve"))
    store.now += timedelta(seconds=30)
    again = store.record(epoch, draft(5, mode="approve"))
    assert (again.generation, again.at, again.confirmed_at) == (first.generation, BEGAN, store.now)
    newer = store.record(epoch, draft(6, mode="approve"))
    assert newer.generation > first.generation
    assert states(store.read(first.generation)) == ["overtaken"]
    assert "took its place" in store.read(first.generation).rows[0].outcome


def test_an_epoch_begins_with_a_plan_of_its_own_and_ends_all_writes_of_the_one_before(store: ScalerStore) -> None:
    old = store.lead("a")
    [row] = store.record(old, draft(5)).rows
    store.now += timedelta(seconds=11)
    epoch = store.lead("b")
    assert not store.begin(old, row)
    assert store.database.write(lambda c: scale_plans.record(c, old, [draft(9)])) is None
    newer = store.record(epoch, draft(5))
    assert newer.generation > row.generation
    assert not store.begin(epoch, row), "an older plan is not written after a newer one was recorded"
    assert store.begin(epoch, newer.rows[0])


def test_a_write_is_of_the_workload_as_it_was_read(store: ScalerStore) -> None:
    epoch = store.lead("a")
    first = store.record(epoch, draft(5, mode="approve"))
    assert store.decide(first.rows[0], ScaleState.APPROVED)
    for changed in ({"object_generation": 2}, {"object_generation": 2, "uid": "made-again"}):
        later = store.record(epoch, replace(draft(5, mode="approve"), **changed))
        assert (states(later), later.rows[0].since) == (["proposed"], later.generation)
        assert later.rows[0].object_generation == 2
        assert store.decide(later.rows[0], ScaleState.REJECTED)


def test_what_no_column_holds_costs_one_workload_its_number_and_not_all_their_plan(store: ScalerStore) -> None:
    strange = replace(draft(2**31, name="a", replicas=3), service="a\0b\ud800", hold="c\0" * 1000)
    epoch = store.lead("a")
    first = store.record(epoch, strange, draft(5))
    assert states(first) == ["held", "approved"]
    row = first.rows[0]
    assert (row.replicas, row.wanted, row.service, len(row.hold)) == (3, None, "a\N{REPLACEMENT CHARACTER}b?", 500)
    assert store.record(epoch, strange, draft(5)).generation == first.generation
    keeper = ScaleStore(store.database, "a", 10.0)
    keeper.settle(epoch, first.rows[1], ScaleState.REFUSED, "403 \0" * 1000)
    assert store.read().rows[1].outcome.startswith("403 \N{REPLACEMENT CHARACTER}")


def test_what_a_person_said_counts_for_later_plans_that_decide_the_same(store: ScalerStore) -> None:
    epoch = store.lead("a")
    first = store.record(epoch, draft(5, mode="approve"), draft(5, mode="approve", name="search"))
    assert store.decide(first.rows[0], ScaleState.APPROVED)
    assert not store.decide(first.rows[0], ScaleState.APPROVED), "it is no longer proposed"
    later = store.record(epoch, draft(5, mode="approve"), draft(7, mode="approve", name="search"))
    assert states(later) == ["approved", "proposed"]
    assert [row.since for row in later.rows] == [first.generation, later.generation]
    assert later.rows[0].decided_by == "ines"


def test_what_is_approved_can_be_rejected_until_its_write_begins(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5)).rows
    assert store.decide(row, ScaleState.REJECTED)
    assert not store.begin(epoch, row)
    assert store.settle(epoch, row, ScaleState.OVERTAKEN) is False, "no newer plan took its place"
    assert states(store.record(epoch, draft(5))) == ["rejected"]
    [later] = store.record(epoch, draft(6)).rows
    assert store.begin(epoch, later)
    assert not store.decide(later, ScaleState.REJECTED)


def test_a_write_in_doubt_keeps_its_workload_until_it_is_settled(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5)).rows
    assert store.begin(epoch, row, "812")
    later = store.record(epoch, draft(9), draft(3, name="search"))
    assert states(later) == ["held", "approved"]
    assert later.rows[0].wanted == 5, "no newer plan wants another number than what may still be written"
    assert "resource version 812" in later.rows[0].hold
    assert store.settle(epoch, row, ScaleState.WRITTEN, "read back")
    assert states(store.record(epoch, draft(9, replicas=5), draft(3, name="search"))) == ["approved", "approved"]
    assert store.read(row.generation).rows[0].outcome == "read back"


def test_a_write_is_settled_by_whoever_leads(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5)).rows
    assert store.begin(epoch, row)
    assert store.begin(epoch, row, "8"), "the same write, at the version that has come since"
    store.now += timedelta(seconds=11)
    newer = store.lead("b")
    assert not store.settle(epoch, row, ScaleState.WRITTEN), "the next leader reads the cluster back"
    assert [found.target for found in store.database.read(scale_plans.find_writing)] == [row.target]
    assert store.settle(newer, row, ScaleState.WRITTEN)
    assert store.database.read(scale_plans.find_writing) == []


def test_a_written_number_is_the_replicas_that_the_next_decision_begins_from(store: ScalerStore) -> None:
    epoch = store.lead("a")
    first = store.record(epoch, draft(5))
    store.begin(epoch, first.rows[0])
    store.settle(epoch, first.rows[0], ScaleState.WRITTEN)
    assert store.record(epoch, draft(5, replicas=5)).generation == first.generation
    assert states(store.record(epoch, draft(5, replicas=4))) == ["approved"], "another has taken it back"


def test_a_refused_write_stands_with_its_approval_and_is_tried_less_and_less_often(store: ScalerStore) -> None:
    epoch = store.lead("a")
    first = store.record(epoch, draft(5, mode="approve"))
    assert store.decide(first.rows[0], ScaleState.APPROVED)
    waited = []
    for version in ("7", "7", "8"):
        [row] = store.record(epoch, draft(5, mode="approve")).rows
        assert (row.generation, row.decided_by) == (first.generation, "ines")
        assert store.begin(epoch, row, version)
        assert store.settle(epoch, row, ScaleState.REFUSED, "429 busy")
        [row] = store.read().rows
        assert row.retry_at and not store.begin(epoch, row), "it is not tried sooner"
        waited.append((row.retry_at - store.now).total_seconds())
        store.now = row.retry_at
    assert (waited, row.tries) == ([5.0, 10.0, 20.0], 3)
    assert store.begin(epoch, row)
    assert store.settle(epoch, row, ScaleState.WRITTEN)
    assert (store.read().rows[0].tries, store.read().rows[0].retry_at) == (0, None)


def test_the_cluster_may_ask_for_a_longer_wait_and_another_number_waits_as_well(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5)).rows
    assert store.begin(epoch, row)
    assert store.settle(epoch, row, ScaleState.REFUSED, "429 busy", asked_seconds=40.0)
    [newer] = store.record(epoch, draft(6)).rows
    assert (newer.state, newer.tries, newer.retry_at) == ("approved", 1, store.now + timedelta(seconds=40))
    assert not store.begin(epoch, newer)
    assert scale_plans.find_wait_seconds(99, 1e9) == scale_plans.MOST_ASKED_SECONDS
    assert store.decide(newer, ScaleState.REJECTED)


def test_what_is_refused_can_be_rejected_and_what_is_overtaken_is_decided_again(store: ScalerStore) -> None:
    epoch = store.lead("a")
    refused, overtaken = store.record(epoch, draft(5), draft(5, name="search")).rows
    store.settle(epoch, refused, ScaleState.REFUSED, "403 forbidden")
    store.settle(epoch, overtaken, ScaleState.OVERTAKEN, "another changed it")
    assert store.decide(refused, ScaleState.REJECTED)
    store.now += timedelta(minutes=6)
    assert not store.begin(epoch, refused)
    assert states(store.record(epoch, draft(5), draft(5, name="search"))) == ["rejected", "approved"]


@pytest.mark.parametrize("said", [ScaleState.APPROVED, ScaleState.REJECTED, None])
def test_a_hold_suspends_what_was_said_and_another_specification_ends_it(
    store: ScalerStore, said: ScaleState | None
) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5, mode="approve")).rows
    if said:
        assert store.decide(row, said)
    held = draft(5, mode="approve", hold="HPA shop/ranker owns it")
    assert states(store.record(epoch, held)) == states(store.record(epoch, held)) == ["held"]
    [again] = store.record(epoch, draft(5, mode="approve")).rows
    assert (again.state, again.since) == (said or "proposed", row.since), "and nobody is asked again"
    store.record(epoch, held)
    [other] = store.record(epoch, replace(draft(5, mode="approve"), object_generation=2)).rows
    assert (other.state, other.since, other.decided_by) == ("proposed", other.generation, "")


def test_an_approved_write_that_was_long_in_doubt_is_not_asked_for_again(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5, mode="approve")).rows
    assert store.decide(row, ScaleState.APPROVED)
    assert store.begin(epoch, row)
    doubtful = store.record(epoch, draft(5, mode="approve"), draft(9, name="search"))
    assert states(doubtful) == ["held", "approved"]
    assert store.settle(epoch, row, ScaleState.REFUSED, "its answer was lost, and it was not done and no longer can be")
    later = store.record(epoch, draft(5, mode="approve"), draft(9, name="search"))
    assert (states(later), later.rows[0].decided_by) == (["approved", "approved"], "ines")


def test_while_nothing_can_be_read_a_decision_stands_and_is_not_written(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5, mode="approve")).rows
    assert store.decide(row, ScaleState.APPROVED)
    blind = replace(draft(None, mode="approve", hold="its load could not be read: 503"), is_blind=True)
    held = store.record(epoch, blind)
    assert (states(held), held.rows[0].wanted, held.rows[0].is_blind) == (["held"], 5, True)
    other = replace(blind, hold="its load could not be read: 502")
    assert store.record(epoch, other).generation == held.generation
    assert not store.begin(epoch, held.rows[0])
    [again] = store.record(epoch, draft(5, mode="approve")).rows
    assert (again.state, again.decided_by, again.since) == ("approved", "ines", row.since)


def test_while_scalers_are_paused_no_write_begins_and_every_workload_is_advisory(store: ScalerStore) -> None:
    epoch = store.lead("a")
    begun, approved, asked = store.record(epoch, draft(5), draft(5, name="x"), draft(5, mode="approve", name="y")).rows
    assert store.decide(asked, ScaleState.APPROVED)
    assert store.begin(epoch, begun)
    assert store.database.write(lambda c: scale_pause.begin(c, "ines", "load test"))
    assert not store.database.write(lambda c: scale_pause.begin(c, "ben", "")), "they are paused already"
    assert not store.begin(epoch, approved)
    pause = store.read().pause
    assert pause and (pause.by, pause.since, pause.message, pause.writing) == ("ines", BEGAN, "load test", 1)
    assert store.settle(epoch, begun, ScaleState.WRITTEN)
    drafts = draft(5, replicas=5), draft(5, name="x"), draft(5, mode="approve", name="y")
    assert states(store.record(epoch, *drafts)) == ["steady", "advised", "advised"]
    store.now += timedelta(seconds=11)
    other = store.lead("b")
    assert states(store.record(other, *drafts)) == ["steady", "advised", "advised"], "a scaler that starts later"
    assert store.database.write(scale_pause.lift) and store.read().pause is None
    assert states(store.record(other, *drafts)) == ["steady", "approved", "proposed"], "a person is asked again"


def test_a_write_that_begins_while_scalers_are_being_paused_waits_and_is_refused(store: ScalerStore) -> None:
    epoch = store.lead("a")
    [row] = store.record(epoch, draft(5)).rows
    with ThreadPoolExecutor(1) as threads:

        def pause(connection: Connection) -> Future[bool]:
            scale_pause.begin(connection, "ines", "")
            found = threads.submit(store.begin, epoch, row)
            until(lambda: waits_for_a_lock(store), "the write waits")
            return found

        assert store.database.write(pause).result() is False


def waits_for_a_lock(store: ScalerStore) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    return bool(store.database.read(lambda connection: connection.execute(text(query)).scalar()))
