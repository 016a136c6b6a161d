"""Explains why a cycle got no plan: the reason, a message, and what changed that may be the cause."""

from __future__ import annotations

from app.control.domain.blame import describe_suspects, suspects
from app.control.domain.decision import SolveOutcome, SolverAnswer
from app.control.domain.events import Reason
from app.control.domain.snapshot import DeclaredObject

SOLVER_FAULTS = (SolveOutcome.CRASHED, SolveOutcome.WRONG)  # more time would not help
FAILURES = {
    SolveOutcome.OUT_OF_TIME: Reason.SOLVER_OUT_OF_TIME,
    SolveOutcome.CRASHED: Reason.SOLVER_CRASHED,
    SolveOutcome.WRONG: Reason.SOLVER_WRONG,
    SolveOutcome.COMPILING: Reason.SOLVER_COMPILING,
}


def explain_failure(
    answer: SolverAnswer, answered: tuple[DeclaredObject, ...], declared: tuple[DeclaredObject, ...]
) -> tuple[Reason, str, tuple[DeclaredObject, ...]]:
    """Returns reason, message and suspects of an answer without a plan; `answered` is the world of the last answer."""
    reason = FAILURES[answer.outcome]
    found = suspects(answered, declared) if answer.outcome in SOLVER_FAULTS else ()
    return reason, "; ".join(filter(None, (answer.message or reason.sentence, describe_suspects(found)))), found
