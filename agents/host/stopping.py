"""How a job is stopped: its own signal to save, time to do so, SIGTERM, time to exit, and only then by force."""

from __future__ import annotations

from enum import StrEnum

SAVE_SECONDS = 10.0  # after its own signal
TERM_SECONDS = 10.0  # after SIGTERM at least, and what its template gives it to drain


class StopSignal(StrEnum):
    """What a job that is to go is told now. Saying it again does no harm."""

    SAVE = "save"  # the template's own signal
    ASK = "ask"  # SIGTERM
    MAKE = "make"  # terminate its client, then SIGKILL


def due_signal(waited_seconds: float, checkpoint_signal: str, drain_seconds: float) -> StopSignal:
    """What is due so long after it was first told to go. A job that exits on its own signal hears nothing more."""
    save_seconds = SAVE_SECONDS if checkpoint_signal else 0.0
    if checkpoint_signal and waited_seconds < save_seconds:
        return StopSignal.SAVE
    if waited_seconds < save_seconds + max(TERM_SECONDS, drain_seconds):
        return StopSignal.ASK
    return StopSignal.MAKE
