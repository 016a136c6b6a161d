"""Answers long questions, explanations and what-ifs, in a separate process of low priority."""

from __future__ import annotations

from importlib import import_module
from typing import TypeVar

from app.control.solve.aside import Aside
from app.control.solve.process import SolverProcess
from app.worker.places import Places
from app.worker.process import WorkerDied, WorkerLate

MOST_QUESTIONS = 4  # at work and waiting, half of them of one caller; with more an answer would take too long
GRACE_SECONDS = 20.0  # beyond the question's own seconds
NEEDED = ("app.control.answer.explain.question", "app.control.answer.whatif.question", "scipy.optimize")

T = TypeVar("T")


class NoAnswer(Exception):
    """The process died or ran out of time; the message says which."""


class LoopsMissing(Exception):
    """The solver's loops are still being compiled, once on each machine; no question is answered before."""


class QuestionProcess:
    """One process, started by the first question or before it, that answers one question after another."""

    def __init__(self, nice: int = 15, cores: int = 1, grace_seconds: float = GRACE_SECONDS) -> None:
        self._process = SolverProcess("questions", nice, cores, needed=NEEDED)
        self._places = Places(1, MOST_QUESTIONS - 1)
        self._grace_seconds = grace_seconds

    def start(self) -> None:
        """Starts the process, without waiting; where that fails, a question tries again."""
        self._process.start()

    def ask(self, order: Aside[T], seconds: float, caller: str) -> T:
        """Returns the order's answer; WorkersBusy, LoopsMissing or NoAnswer if there is none."""
        with self._places.turn(caller):
            self._process.start()
            if self._process.is_compiling():
                raise LoopsMissing
            try:
                found: T = self._process.ask(order, seconds + self._grace_seconds).result()
                return found
            except WorkerLate as late:
                raise NoAnswer(f"{late}; ask for less") from None
            except WorkerDied as died:
                raise NoAnswer(str(died)) from None

    def close(self) -> None:
        """Ends the process, if there is one."""
        self._process.close()


def import_needed() -> None:
    """Imports what questions are made of and answered with."""
    for name in NEEDED:
        import_module(name)
