"""The questions in the documentation are asked, of a history small enough to check their answers by hand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.report.asked import answer

PAGE = Path("docs/sql.md").read_text()
QUESTIONS = re.findall(
    r"^### (\d+)\. (.+?)\n\n```sql\n(.+?)\n```\n\n```text\n(.+?)\n```", PAGE, re.DOTALL | re.MULTILINE
)


def test_there_are_twenty_three_questions() -> None:
    assert [int(number) for number, *_ in QUESTIONS] == list(range(1, 24))
    assert PAGE.count("```sql") == len(QUESTIONS)


@pytest.mark.parametrize(
    ("question", "query", "told"), [one[1:] for one in QUESTIONS], ids=[q for _, q, *_ in QUESTIONS]
)
def test_a_question_has_the_answer_that_the_page_gives(history_url: str, question: str, query: str, told: str) -> None:
    assert answer(history_url, query) == told
