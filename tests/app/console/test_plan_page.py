"""Words of the page of a plan."""

from __future__ import annotations

from app.console.wording import sentence


def test_a_sentence_does_not_change_the_name_that_it_begins_with() -> None:
    assert sentence("shop/a: 17.1 are expected") == "shop/a: 17.1 are expected."
    assert sentence("") == ""
