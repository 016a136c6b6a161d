"""A plan that awaits approval expires when its premises no longer hold."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from app.control.domain.snapshot import (
    DeclaredObject,
    ExpectedLoad,
    JobProgress,
    NodeStatus,
    Snapshot,
    TenantSpending,
)
from app.control.rollout.proposals import no_longer
from tests.support.corrections import slower

THEN = Snapshot(
    at=datetime(2026, 1, 1, tzinfo=UTC),
    epoch=1,
    declared=(
        DeclaredObject("Service", "shop", "search", {"ratePerSecond": 100}),
        DeclaredObject("Policy", "", "default", {}),
    ),
    nodes={"n1": NodeStatus("n1", "reporting")},
    expected={"shop/search": ExpectedLoad(100, 90, 120)},
    target=3,
)


def test_time_money_and_progress_of_jobs_change_nothing() -> None:
    now = replace(
        THEN, at=THEN.at + timedelta(hours=1), epoch=2, jobs={"lab/x": JobProgress("running", 7)},
        tenants={"shop": TenantSpending(9.0)}, expected={"shop/search": ExpectedLoad(118)},
    )  # fmt: skip
    assert no_longer(THEN, now) == ""


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"target": 4}, "plan 4 is in force; it was plan 3"),
        ({"declared": THEN.declared[:1]}, "Policy default was deleted"),
        ({"declared": (*THEN.declared, DeclaredObject("Job", "lab", "x", {}))}, "Job lab/x was declared"),
        (
            {"declared": (DeclaredObject("Service", "shop", "search", {"ratePerSecond": 1}), THEN.declared[1])},
            "Service shop/search was changed",
        ),
        ({"nodes": {"n1": NodeStatus("n1", "silent")}}, "node n1 has changed"),
        ({"nodes": {"n1": NodeStatus("n1", "reporting", cordoned_gpus=(0,))}}, "node n1 has changed"),
        ({"nodes": {}}, "node n1 has changed"),
        ({"corrections": {"m/v/g": slower(1.1)}}, "profiles were corrected"),
        ({"expected": {"shop/search": ExpectedLoad(121)}}, "shop/search is expected at 121 requests/s; it was 100"),
        ({"expected": {"shop/search": ExpectedLoad(80)}}, "shop/search is expected at 80 requests/s; it was 100"),
    ],
)
def test_a_changed_dependency_of_a_plan_is_named(changed: dict[str, Any], expected: str) -> None:
    assert no_longer(THEN, replace(THEN, **changed)) == expected


def test_a_copy_that_failed_since_is_a_change_and_one_that_had_failed_before_is_none() -> None:
    failed = {"shop/search": (("n1", 0),)}
    assert no_longer(THEN, replace(THEN, failed_places=failed)) == "a copy of shop/search failed"
    assert no_longer(replace(THEN, failed_places=failed), replace(THEN, failed_places=failed)) == ""
    assert no_longer(replace(THEN, failed_places=failed), THEN) == ""
