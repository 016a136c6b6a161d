"""What of a recorded plan a tenant is shown."""

from __future__ import annotations

from typing import Any

from app.api.plans.plan_wire import NOTHING, select_tenant


def test_a_message_that_names_something_of_another_tenant_is_left_out() -> None:
    def held(message: str) -> Any:
        return {"service": "shop/search", "reason": "no_room_to_hand_over", "message": message}

    own = {"id": "shop/search/1", "service": "shop/search"}
    theirs = {"id": "bank/merger-llm/1", "service": "bank/merger-llm"}
    messages = [
        "needs 2.00 GiB more; shop/search/1 is there",
        "bank/merger-llm/1 is still on the GPU",
        "bank/night is still on the GPU",
        "bank/idle takes it",
    ]
    plan: Any = {
        **NOTHING,
        "instances": [own, theirs],
        "jobs": [{"job": "bank/night"}],
        "unserved": [{"service": "bank/idle"}],
        "heldBack": [*map(held, messages), {"service": "", "reason": "unchanged", "message": "all is as before"}],
    }
    shown = select_tenant(plan, "shop")["heldBack"]
    assert [change["message"] for change in shown] == [messages[0], "", "", ""]
    assert select_tenant(plan, "bank")["heldBack"] == []
