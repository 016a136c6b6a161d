"""A pool is explained: how many nodes and why, what each is for, and until when it is paid for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.control.answer.explain.pools import explain_pool
from app.store.fleet.rented import RentedRow

NOW = datetime(2026, 11, 24, 12, tzinfo=UTC)
SPEC = {"gpuType": "v100-16gb", "gpusPerNode": 4, "max": 3, "hook": "cloud"}
WAITS = "1 more would save 0.40 an hour: ordered once waiting has cost 0.20, so far 0.05"


def row(node: str, state: str, paid_minutes: float | None, **more: Any) -> RentedRow:
    paid_at = None if paid_minutes is None else NOW - timedelta(minutes=paid_minutes)
    known: dict[str, Any] = {
        "key": node, "node": node, "pool": "burst", "hook": "cloud", "state": state, "asked_at": NOW, "since": NOW,
        "start_seconds": 300.0, "minimum_seconds": 3600.0, "paid_at": paid_at, "joined_at": None, "called_at": paid_at,
        "returned": False, "ended_at": None, "idle_seconds": 0.0, "message": "", "reports": False, "reclaimed": False,
        "heard_at": None, "newest_at": None,
    }  # fmt: skip
    return RentedRow(**known | more)


def explain(rows: list[RentedRow], status: str = "True", **spec: Any) -> dict[str, Any]:
    plan: Any = {"instances": [{"node": "burst-1", "service": "shop/search"}], "jobs": [], "unserved": []}
    condition = {"type": "Renting", "status": status, "reason": "AsNeeded", "message": WAITS}
    return {**explain_pool("burst", SPEC | spec, 8.0, rows, plan, [condition], ["ordered"], NOW)}


def test_an_empty_pool_says_what_it_waits_for() -> None:
    found = explain([])
    assert found["sentences"] == [
        "burst has no node, of 0 to 3; one would have 4 GPUs of v100-16gb at 8 an hour",
        f"why not more or fewer: {WAITS}",
    ]
    assert (found["waitsFor"], found["lately"]) == (WAITS, ["ordered"])


def test_each_node_says_what_it_is_for_and_until_when_it_is_paid() -> None:
    rows = [
        row("burst-2", "joined", 30, joined_at=NOW, idle_seconds=600.0),
        row("burst-1", "joined", 90, joined_at=NOW),
        row("burst-3", "starting", 1),
        row("other-1", "joined", 1, pool="other"),
        row("burst-9", "gone", 90, ended_at=NOW),
    ]
    found = explain(rows, min=1)
    assert found["sentences"] == [
        "burst has 3 nodes of 1 to 3: 2 joined, 1 starting; each has 4 GPUs of v100-16gb at 8 an hour",
        f"why not more or fewer: {WAITS}",
        "it has as many as its max, 3, allows",
        "burst-1: joined since 2026-11-24 12:00:00 UTC; the plan puts shop/search there",
        "burst-2: joined since 2026-11-24 12:00:00 UTC; the plan puts nothing there; it had nothing for 10 minutes; "
        "it is paid for until 2026-11-24 12:35:00 UTC at least",
        "burst-3: starting since 2026-11-24 12:00:00 UTC; its start takes about 300 s; "
        "it is paid for until 2026-11-24 13:04:00 UTC at least",
    ]
    assert [node["services"] for node in found["nodes"]] == [["shop/search"], [], []]


def test_an_order_that_went_wrong_is_said_so_and_a_pool_at_its_min_names_it() -> None:
    sentences = explain([row("burst-1", "late", 40, message="it does not report")], status="False", min=1)["sentences"]
    assert sentences[1] == f"something is wrong with an order: {WAITS}"
    assert sentences[2] == "it keeps 1 node whatever the load, its min"
    assert sentences[3].endswith("at least; it does not report")


def test_of_many_nodes_the_first_are_named() -> None:
    rows = [row(f"burst-{number:02}", "joined", 90, joined_at=NOW) for number in range(25)]
    assert explain(rows, max=30)["sentences"][-1] == "and 5 more nodes; see: gpuwright get nodes"
