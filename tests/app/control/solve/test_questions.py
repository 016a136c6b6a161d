"""A desk answers in a process of its own, at low priority; its death and its slowness are reported and repaired."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from app.control.solve.questions import MOST_QUESTIONS, NEEDED, LoopsMissing, NoAnswer, QuestionProcess
from app.worker.places import WorkersBusy
from tests.app.control.asides import Dies, Loaded, Pid, Sleeps
from tests.support.missing_loop import OF_EXPLANATIONS, missing_loop
from tests.support.patience import until


@pytest.fixture(scope="module")
def desk() -> Iterator[QuestionProcess]:
    made = QuestionProcess(grace_seconds=0.2)
    yield made
    made.close()


@pytest.mark.slow
def test_answers_come_from_another_process_that_gives_way(desk: QuestionProcess) -> None:
    pid, nice = desk.ask(Pid(), 5.0, "shop")
    assert pid != os.getpid()
    assert nice >= 15
    assert desk.ask(Pid(), 5.0, "shop") == (pid, nice)


@pytest.mark.slow
def test_a_question_that_kills_the_process_is_given_up_and_the_next_is_answered(desk: QuestionProcess) -> None:
    with pytest.raises(NoAnswer, match="ended with exit code 3"):
        desk.ask(Dies(), 5.0, "shop")
    assert desk.ask(Sleeps(0.0), 5.0, "shop") == "awake"


@pytest.mark.slow
def test_a_question_that_takes_too_long_is_given_up_and_the_next_is_answered(desk: QuestionProcess) -> None:
    with pytest.raises(NoAnswer, match="ask for less"):
        desk.ask(Sleeps(60.0), 0.3, "shop")
    assert desk.ask(Sleeps(0.0), 5.0, "shop") == "awake"


@pytest.mark.slow
def test_the_last_of_too_many_questions_are_asked_to_retry(desk: QuestionProcess) -> None:
    together = threading.Barrier(MOST_QUESTIONS + 2)

    def ask(number: int) -> str:
        together.wait()
        try:
            return str(desk.ask(Sleeps(0.5), 30.0, f"caller-{number}"))
        except WorkersBusy:
            return "busy"

    with ThreadPoolExecutor(MOST_QUESTIONS + 2) as pool:
        answers = sorted(pool.map(ask, range(MOST_QUESTIONS + 2)))
    assert answers == ["awake"] * MOST_QUESTIONS + ["busy"] * 2


@pytest.mark.slow
def test_a_greedy_caller_keeps_no_other_out(desk: QuestionProcess) -> None:
    share = MOST_QUESTIONS // 2
    callers = ["shop"] * (share + 2) + ["lab"]
    together = threading.Barrier(len(callers))

    def ask(caller: str) -> str:
        together.wait()
        try:
            return f"{caller} {desk.ask(Sleeps(0.5), 30.0, caller)}"
        except WorkersBusy:
            return f"{caller} busy"

    with ThreadPoolExecutor(len(callers)) as pool:
        answers = sorted(pool.map(ask, callers))
    assert answers == ["lab awake", *["shop awake"] * share, *["shop busy"] * 2]
    assert desk.ask(Sleeps(0.0), 30.0, "shop") == "awake"


@pytest.mark.slow
def test_a_question_is_refused_at_once_while_its_loops_are_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with missing_loop(tmp_path, OF_EXPLANATIONS) as supply, closing(QuestionProcess()) as desk:
        for _ in range(MOST_QUESTIONS + 1):
            with pytest.raises(LoopsMissing):
                desk.ask(Loaded(), 60.0, "shop")
        supply()

        def is_answered() -> bool:
            try:
                assert desk.ask(Loaded(), 60.0, "shop") == NEEDED
            except LoopsMissing:
                return False
            return True

        until(is_answered, "an answer once the loops are there, from a process that has loaded all it needs")


def test_a_question_process_that_was_never_asked_has_no_process_to_end() -> None:
    QuestionProcess().close()
