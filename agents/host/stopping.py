"""Decides how to stop a job: its own save signal, SIGTERM, and SIGKILL, with time in between."""

from __future__ import annotations

from enum import StrEnum

# For a copy that others end: Kubernetes' controllers may be away for a minute, as after a restart of its API server.
SUCCESSOR_SECONDS = 120.0
DRAIN_SLACK_SECONDS = 5.0  # between the agent's look and the kubelet's
TERM_SECONDS = 10.0  # after SIGTERM, or its template's drain time if that is longer


def find_stay_seconds(drain_seconds: float) -> float:
    """Returns how long a copy that others end should serve for its successor to come up; it drains after that."""
    return max(SUCCESSOR_SECONDS, drain_seconds / 2)


def limit_stay_seconds(drain_seconds: float, grace_seconds: float) -> float:
    """Returns how long it may, if it is killed after so many seconds: a short time is divided with its drain."""
    whole = max(0.0, grace_seconds - TERM_SECONDS)
    return min(find_stay_seconds(drain_seconds), max(whole - drain_seconds - DRAIN_SLACK_SECONDS, whole / 2))


class StopSignal(StrEnum):
    """The signal to send to a job that is to stop: each once, and again only by an agent that was restarted."""

    SAVE = "save"  # the template's own signal
    ASK = "ask"  # SIGTERM
    MAKE = "make"  # terminate its client, then SIGKILL


def due_signal(
    waited_seconds: float, checkpoint_signal: str, drain_seconds: float, save_limit_seconds: float
) -> StopSignal:
    """Returns what is due so long after the stop began. A job that exits on its save signal gets no other."""
    save_seconds = save_limit_seconds if checkpoint_signal else 0.0
    if checkpoint_signal and waited_seconds < save_seconds:
        return StopSignal.SAVE
    if waited_seconds < save_seconds + max(TERM_SECONDS, drain_seconds):
        return StopSignal.ASK
    return StopSignal.MAKE
