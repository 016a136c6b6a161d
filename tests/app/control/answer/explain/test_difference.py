"""The difference between two plans is given by service, and counts changes as the contract does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.control.answer.explain.difference import find_differences, is_changed
from app.control.answer.explain.plan import describe_plan, explain_cycles


def line(service: str, gpu: int, **fields: Any) -> dict[str, Any]:
    known = {
        "id": f"{service}-{gpu}", "service": service, "node": "n", "gpu": gpu, "variant": "v", "batch": 8,
        "batchTimeoutMs": 0.0, "smPercent": 40, "memoryGib": 2.0, "clockMhz": 1530.0, "ratePerSecond": 50.0,
    }  # fmt: skip
    return known | fields


def plan(*instances: dict[str, Any], unserved: Sequence[dict[str, Any]] = ()) -> Any:
    return {"instances": instances, "jobs": (), "unserved": unserved}


def test_each_kind_of_change_is_counted_once() -> None:
    before = plan(line("s/a", 0), line("s/a", 1), line("s/a", 2), line("s/b", 3), line("s/c", 4))
    after = plan(
        line("s/a", 0), line("s/a", 1, batch=16), line("s/a", 2, smPercent=50),  # kept, retuned, resized
        line("s/b", 5),  # moved
        line("s/d", 6),  # started, and s/c stopped
    )  # fmt: skip
    found = {difference["service"]: difference for difference in find_differences(before, after)}
    a = found["s/a"]
    assert (a["kept"], a["retuned"], a["resized"], a["started"], a["stopped"], a["moved"]) == (1, 1, 1, 0, 0, 0)
    assert found["s/b"]["words"] == "1 -> 1 instances: 1 moved"
    assert found["s/c"]["words"] == "1 -> 0 instances: 1 stopped"
    assert found["s/d"]["words"] == "0 -> 1 instances: 1 started"


def test_what_stays_comes_last_and_what_is_held_back_says_why() -> None:
    same = plan(line("s/a", 0), line("s/b", 1))
    held: Any = [{"service": "s/b", "reason": "not_worth_its_churn", "message": "saves 0.01, costs 0.05"}]
    found = find_differences(same, same, held)
    assert [is_changed(difference) for difference in found] == [False, False]
    assert next(difference for difference in found if difference["service"] == "s/b")["reasons"] == [
        "held back (not_worth_its_churn): saves 0.01, costs 0.05"
    ]


def test_a_service_that_is_no_longer_served_is_a_change_although_nothing_moved() -> None:
    before = plan(line("s/a", 0))
    after = plan(line("s/a", 0), unserved=[{"service": "s/a", "ratePerSecond": 5.0, "reason": "full"}])
    (difference,) = find_differences(before, after)
    assert is_changed(difference)
    assert difference["reasons"] == ["it is planned for 55 requests a second instead of 50", "unserved: full"]


def test_a_repeated_outcome_is_described_once() -> None:
    noon = "2026-11-24T12:00:{:02}.529Z"
    cycles: Any = [{"at": noon.format(at), "outcome": "unchanged", "message": ""} for at in range(50, 0, -10)]
    cycles.append({"at": "2026-11-24T11:59:00.000Z", "outcome": "crashed", "message": "SIGKILL"})
    assert explain_cycles(cycles) == [
        "2026-11-24 12:00:50 UTC: no other plan was made, 5 times in a row",
        "2026-11-24 11:59:00 UTC: the solver's process died, so the last plan stays in force: SIGKILL",
    ]
    assert "is a planner running?" in explain_cycles([])[0]


def test_a_plan_is_spelled_with_its_proof() -> None:
    certificate = {"cost": 12.0, "resourceCost": 12.0, "bound": 11.0, "gap": 1 / 11, "method": "exact"}
    row = {"generation": 7, "lane": "full", "reason": "cycle", "state": "done", "message": ""}
    sentences = describe_plan(row, {"changes": {"start": 2, "keep": 3}, "certificate": certificate}, [])
    assert sentences == [
        "plan 7 (full) is done: start 2 instances; keep 3",
        "why it was made: The planning period has passed.",
        "its GPUs cost 12 an hour; no plan can cost less than 11, 9.1 % away (exact)",
    ]


def test_a_plan_of_a_cycle_is_explained_by_its_message() -> None:
    row = {
        "generation": 7,
        "lane": "full",
        "reason": "cycle",
        "state": "superseded",
        "message": "it saves 0.50 an hour",
    }
    assert describe_plan(row, {"changes": {"start": 2}}, [])[1:] == ["why it was made: it saves 0.50 an hour"]
    other = describe_plan(row | {"reason": "load_rose", "message": "shop/a got more"}, {}, [])
    assert other[1:] == ["why it was made: A service gets more requests than it was planned for.", "shop/a got more"]


def test_a_plan_states_the_price_of_gpus_apart_from_the_penalty_for_what_is_unserved() -> None:
    certificate = {"cost": 1012.0, "resourceCost": 12.0, "unservedCost": 1000.0, "bound": None, "method": "greedy"}
    row = {"generation": 7, "lane": "full", "reason": "cycle", "state": "done", "message": ""}
    left = {"service": "shop/search", "ratePerSecond": 5.0, "reason": ""}
    sentences = describe_plan(row, {"changes": {}, "certificate": certificate, "unserved": [left]}, [])
    assert "its GPUs cost 12 an hour; the penalty for what is unserved is 1,000.00; no bound (greedy)" in sentences
    proved = certificate | {"bound": 1010.5, "gap": 1.5 / 10.5}
    assert describe_plan(row, {"changes": {}, "certificate": proved}, [])[-1] == (
        "its GPUs cost 12 an hour; no plan that leaves no more unserved can cost less than 10.5, 14.3 % away; "
        "the penalty for what is unserved is 1,000.00 (greedy)"
    )
    assert sentences[-1].startswith("unserved: shop/search, 5 a second: its reason is not known here")


def test_who_leaves_a_gpu_empty_says_so_though_another_grows_where_it_leaves_too() -> None:
    before = plan(line("s/a", 0), line("s/a", 1), line("s/b", 1), line("s/b", 2))
    after = plan(line("s/a", 2), line("s/a", 3), line("s/b", 1, smPercent=50), line("s/b", 2))
    reasons = {difference["service"]: difference["reasons"] for difference in find_differences(before, after)}
    assert reasons["s/a"] == ["it leaves n/0 empty"]
    pressed = plan(line("s/a", 2), line("s/a", 3), line("s/b", 1, ratePerSecond=90.0), line("s/b", 0), line("s/b", 2))
    reasons = {difference["service"]: difference["reasons"] for difference in find_differences(before, pressed)}
    assert reasons["s/a"] == ["it makes room for s/b on n/0"]
