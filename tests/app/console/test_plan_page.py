"""The page of a plan says why it was made, in sentences."""

from __future__ import annotations

from typing import Any

import pytest

from app.console.plan_page import why_planned
from app.console.wording import sentence

PERIOD = "The planning period has passed."


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ({"reason": "cycle", "message": "it saves 0.50 an hour"}, "It saves 0.50 an hour."),
        ({"reason": "cycle", "message": None}, PERIOD),
        ({"reason": "cycle"}, PERIOD),  # as a tenant sees it
        ({"reason": "first_plan", "message": "adds shop/a"}, "No plan was in force yet."),
    ],
)
def test_a_plan_of_a_cycle_is_explained_by_its_message(head: Any, why: str) -> None:
    assert why_planned(head) == why


def test_a_sentence_does_not_change_the_name_that_it_begins_with() -> None:
    assert sentence("shop/a: 17.1 are expected") == "shop/a: 17.1 are expected."
    assert sentence("") == ""
