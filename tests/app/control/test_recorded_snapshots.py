"""Snapshots in the record: what is written is read again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from app.control.answer.replay import Record, read_record, write_record
from app.control.domain.decision import PlanningLane, SolveOutcome
from app.control.domain.snapshot import Correction, ExpectedLoad, LatencyFactor, Snapshot
from app.control.record.encoding import join_snapshot, snapshot_parts

SNAPSHOT = Snapshot(datetime(2026, 1, 1, tzinfo=UTC), 1)


def test_what_was_believed_is_in_the_snapshot() -> None:
    believed = Correction((LatencyFactor(8, 30, 1.2), LatencyFactor(8, 100, 1.0)), 1.5, 1.1, 0.9)
    snapshot = replace(SNAPSHOT, corrections={"resnet/fp16/v100": believed})
    assert join_snapshot(snapshot_parts(snapshot)) == snapshot


def test_bursts_that_gateways_measured_are_in_the_snapshot_and_in_the_record() -> None:
    load = ExpectedLoad(100.0, 90.0, 100.0, burstiness={"1": 1.4, "8": 2.5})
    snapshot = replace(SNAPSHOT, expected={"shop/search": load})
    assert join_snapshot(snapshot_parts(snapshot)) == snapshot
    record = Record(1, PlanningLane.FULL, SolveOutcome.SOLVED, snapshot, (), {})
    assert read_record(write_record(record)) == record
