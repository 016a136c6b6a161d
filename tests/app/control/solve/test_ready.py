"""The process that answers questions is there before the first one, and what a question needs is loaded."""

from __future__ import annotations

import pytest

from app.control.answer.ready import NEEDED, GetReady
from app.control.solve.questions import QuestionProcess


@pytest.mark.slow
def test_a_process_that_was_made_ready_answers_from_what_it_has_loaded() -> None:
    desk = QuestionProcess(nice=0)
    try:
        desk.get_ready(GetReady())
        assert desk.ask(GetReady(), 60.0, "t") == NEEDED
    finally:
        desk.close()
