"""What a pool's condition names: an order that may cost money unseen, until it does no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from app.control.rent.question import make_pool
from app.control.rent.shown import describe_pools
from app.control.rent.states import HookAnswer, RentedNode, RentState, cancel, leave, take_answer

NOW = datetime(2027, 1, 4, tzinfo=UTC)
SPEC = {"gpuType": "l4-24gb", "gpusPerNode": 1, "cpuCores": 8, "memoryGib": 32, "max": 2, "hook": "cloud"}
ORDER = RentedNode("burst-1-k", "burst-1", "burst", "cloud", RentState.ASKED, NOW, NOW, 240.0, 1800.0)


def condition(row: RentedNode) -> tuple[str, str]:
    pool = make_pool("burst", SPEC, {"pricePerHour": 1.0})
    (shown,) = describe_pools({"burst": pool}, [row], {}, {}).values()
    (found,) = shown.statements
    return found.status, found.message


def test_a_node_that_cannot_be_given_back_is_named_whatever_its_hook_says() -> None:
    row = replace(leave(replace(ORDER, state=RentState.JOINED), NOW), called_at=NOW, message="rent ended with 1")
    assert condition(row) == ("False", "node burst-1: rent ended with 1")
    assert condition(replace(row, returned=True))[0] == "True"
    seen = replace(row, message="it still reports: it may be paid for")
    again = take_answer(seen, "return", HookAnswer("returned", "done"), NOW).rented
    assert condition(again) == ("False", "node burst-1: it still reports: it may be paid for")


def test_an_order_that_no_hook_has_seen_is_no_refusal() -> None:
    assert condition(cancel(ORDER, NOW, "the pool has at most 0 nodes now"))[0] == "True"
    refused = ORDER.note_call(NOW).enter(RentState.REFUSED, NOW + timedelta(seconds=1), "no capacity")
    assert condition(refused) == ("False", "node burst-1: no capacity")
