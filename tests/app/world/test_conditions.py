"""Conditions change when what they say changes, and remember since when."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from app.manifests.model import Kind, Manifest
from app.store.world.objects import StoredObject
from app.world.conditions import ObjectCondition, set_condition
from app.world.decisions import decide

TEN = datetime(2026, 11, 20, 10, tzinfo=UTC)
ELEVEN = datetime(2026, 11, 20, 11, tzinfo=UTC)
HEARD = ObjectCondition("Reporting", "True", "Reporting", "reports arrive")
SILENT = ObjectCondition("Reporting", "Unknown", "Silent", "no report")


def node() -> StoredObject:
    (decision,) = decide([Manifest(Kind.NODE, "", "node-1", {"gpuType": "t4", "gpus": 1})], {}, TEN)
    return decision.object


def said(stored: StoredObject) -> Any:
    conditions: Any = stored.status["conditions"]
    (condition,) = conditions
    return condition


def test_saying_the_same_again_changes_nothing() -> None:
    once = set_condition(node(), HEARD, TEN)
    assert set_condition(once, HEARD, ELEVEN) is once


def test_another_status_is_a_transition() -> None:
    turned = set_condition(set_condition(node(), HEARD, TEN), SILENT, ELEVEN)
    assert said(turned)["status"] == "Unknown"
    assert said(turned)["lastTransitionTime"] == "2026-11-20T11:00:00.000Z"


def test_another_message_of_the_same_status_is_none() -> None:
    reworded = ObjectCondition("Reporting", "True", "Reporting", "reports arrive again")
    told = set_condition(set_condition(node(), HEARD, TEN), reworded, ELEVEN)
    assert said(told)["message"] == "reports arrive again"
    assert said(told)["lastTransitionTime"] == "2026-11-20T10:00:00.000Z"


def test_conditions_of_other_types_stay() -> None:
    other = ObjectCondition("Healthy", "True", "Healthy", "all GPUs answer")
    both = set_condition(set_condition(node(), HEARD, TEN), other, ELEVEN)
    conditions: Any = both.status["conditions"]
    assert [condition["type"] for condition in conditions] == ["Reporting", "Healthy"]
