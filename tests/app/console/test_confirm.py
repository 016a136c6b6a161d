"""What is asked before something large is done; and refusals as pages of the console."""

from __future__ import annotations

from typing import Any

import pytest

from app.access import Principal, Scope
from app.console.confirm import confirm_drain, confirm_plan
from app.console.plan_page import spell_owners
from app.console.refusals import refusal_page
from app.problem import HttpProblem

PLAN: Any = {
    "instances": [
        {"service": "shop/a", "node": "n-1", "gpu": 0},
        {"service": "shop/a", "node": "n-1", "gpu": 1},
        {"service": "shop/b", "node": "n-1", "gpu": 1, "gpus": [1, 2]},
        {"service": "shop/b", "node": "n-2", "gpu": 0},
    ],
    "jobs": [{"job": "lab/train", "node": "n-1", "gpu": 2}],
}


def test_a_drain_says_how_much_must_move_from_a_node_and_from_a_gpu() -> None:
    whole = confirm_drain("n-1", None, 1.5, "fans", PLAN)
    assert whole.effects[0] == "3 instances of 2 services and 1 job must move."
    assert "It should be empty within 1.5 hours." in whole.effects
    assert [(line.name, line.instances) for line in whole.affected] == [("shop/a", 2), ("shop/b", 1), ("lab/train", 0)]
    assert (whole.fields, whole.message, whole.action) == ({"hours": "1.5"}, "fans", "/nodes/n-1/drain")
    gpu = confirm_drain("n-1", 2, None, "", PLAN)
    assert (gpu.effects[0], gpu.fields) == ("1 instance of 1 service and 1 job must move.", {"gpu": "2"})
    assert confirm_drain("n-3", None, None, "", PLAN).effects[0] == "Nothing is planned there, so nothing has to move."


def test_an_approval_says_what_changes_and_costs_and_a_rejection_what_stays() -> None:
    head: Any = {"generation": 8, "changes": {"keep": 4, "start": 2, "move": 1}}
    side = {"unservedPerSecond": 0.0}
    difference: Any = {
        "cost": {"before": {"resourceCost": 10.0}, "after": {"resourceCost": 12.5}},
        "services": [{"service": "shop/a", "before": side, "after": side | {"unservedPerSecond": 4.0}}],
    }
    assert confirm_plan("approve", head, difference, 7, "EUR").effects == [
        "Its rollout begins.",
        "It will start 2 instances, move 1.",
        "GPUs then cost 12.50 EUR an hour, now 10.00.",
        "1 service changes.",
        "Of the services that change, 4 requests a second stay unserved.",
    ]
    rejected = confirm_plan("reject", head, None, 7, "EUR")
    assert rejected.effects[-1] == "Plan 7 stays in force."
    assert (rejected.action, rejected.button) == ("/plans/8/reject", "Reject plan 8")


def test_services_and_jobs_of_a_plan_are_counted_apart() -> None:
    names = ["lab/train", "shop/a", "shop/b", "shop/gone"]
    assert spell_owners(names, {"lab/train": True, "shop/a": False, "shop/b": False}) == (
        "2 services, 1 job, 1 deleted since"
    )
    assert spell_owners([], {}) == ""


@pytest.mark.parametrize("slug", ["rate-limited", "unavailable", "internal", "method-not-allowed"])
def test_a_refusal_has_the_navigation_for_a_session_and_stands_alone_without_one(slug: str) -> None:
    scope: dict[str, Any] = {
        "type": "http", "method": "GET", "path": "/services", "query_string": b"find=<b>", "headers": [],
        "state": {"principal": Principal("s", Scope.VIEWER), "request_id": "r1"},
    }  # fmt: skip
    problem = HttpProblem(slug, "too <many>")
    page = refusal_page(problem, scope)
    assert '<nav aria-label="Pages">' in page and "too &lt;many&gt;" in page and "request r1" in page
    assert "data-still" not in page, "it goes on by itself once the server answers"
    assert "data-still" in refusal_page(problem, scope | {"method": "POST"}), "or it would send the form again"
    alone = refusal_page(problem, scope | {"state": {"request_id": "r2"}})
    assert "<nav" not in alone and "too &lt;many&gt;" in alone and "request r2" in alone
