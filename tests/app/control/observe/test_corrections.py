"""Corrections of profiles are recorded under the leader's epoch."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from app.control.domain.leading import Deposed
from app.control.observe.drift.correct import ProfileCorrection
from app.control.observe.listener import record_corrections
from app.control.record.planner_store import PlannerStore
from app.store.database.database import Database
from app.store.plans import corrections
from app.store.world import events
from tests.support.corrections import slower

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = "resnet/fp16/v100"


def test_the_current_correction_is_stored(database: Database) -> None:
    store = PlannerStore(database, "one")
    store.lead()
    for factor in (1.1, 1.15, 1.15):
        moved = record_corrections(
            database, store.epoch, [ProfileCorrection(KEY, slower(factor), message=f"x {factor}")], NOON
        )
        assert moved
    (row,) = database.read(corrections.read_all)
    assert (row.model, row.variant, row.gpu_type, row.latency_factor) == ("resnet", "fp16", "v100", 1.15)
    assert row.evidence["message"] == "x 1.15"


def test_an_alarm_alone_calls_for_no_new_plan(database: Database) -> None:
    store = PlannerStore(database, "one")
    store.lead()
    assert not record_corrections(database, store.epoch, [ProfileCorrection(KEY, alarm="the profile is wrong")], NOON)
    events_found = database.read(lambda connection: events.recent(connection, events.EventFilter(), 10))
    assert [(event.reason, event.severity) for event in events_found] == [("profile_wrong", "alarm")]


def test_who_leads_no_more_writes_nothing(database: Database) -> None:
    store = PlannerStore(database, "one")
    store.lead()
    with pytest.raises(Deposed):
        record_corrections(database, store.epoch - 1, [ProfileCorrection(KEY, slower(1.1), message="late")], NOON)
    assert database.read(corrections.read_all) == []
