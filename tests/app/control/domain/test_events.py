"""Every reason has one word, one severity and one sentence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from app.control.domain.events import Reason, event_of, reason_of, spell_why


def test_every_reason_is_a_word_with_one_sentence() -> None:
    assert [reason for reason in Reason if not re.fullmatch(r"[a-z][a-z_]+[a-z]", reason.value)] == []
    assert [reason for reason in Reason if reason.name != reason.value.upper()] == []
    assert [reason for reason in Reason if not re.fullmatch(r"[A-Z][^.]+\.", reason.sentence)] == []
    assert [reason for reason in Reason if reason.severity not in ("info", "warning", "alarm")] == []
    assert [reason for reason in Reason if reason_of(reason.value) is not reason] == []


@pytest.mark.slow
def test_every_listed_reason_is_given_somewhere() -> None:
    texts = [file.read_text() for file in Path("app").rglob("*.py") if file.name != "events.py"]
    given = {name for text in texts for name in re.findall(r"\bReason\.([A-Z_]+)", text)}
    # Lower rooms may not import the reasons.
    in_words = r'\bNewEvent\(\s*"([a-z_]+)"|^(?:REASON|REPLACED) = "([a-z_]+)"'
    given |= {word.upper() for text in texts for words in re.findall(in_words, text, re.MULTILINE) for word in words}
    assert {reason.name for reason in Reason} <= given


def test_an_event_splits_a_plans_name_and_says_at_least_its_sentence() -> None:
    event = event_of(Reason.UNSERVED, kind="Service", name="shop/search")
    assert (event.tenant, event.name) == ("shop", "search")
    assert event.message == Reason.UNSERVED.sentence


def test_conditions_spell_a_reason_in_camel_case() -> None:
    assert Reason.NOT_WORTH_ITS_CHURN.camel == "NotWorthItsChurn"


@pytest.mark.parametrize(
    ("word", "message", "why"),
    [
        ("cycle", "it saves 0.50 an hour", "it saves 0.50 an hour"),
        ("cycle", "", "The planning period has passed."),  # also what a tenant sees
        ("service_applied", "Service shop/a was changed", "Service shop/a was changed"),
        ("first_plan", "adds shop/a", "No plan was in force yet."),
        ("", "", ""),
    ],
)
def test_why_a_plan_was_made_is_said_in_words(word: str, message: str, why: str) -> None:
    assert spell_why(word, message) == why
