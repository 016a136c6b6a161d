"""A job that must stop is asked first and forced later."""

from __future__ import annotations

import pytest

from agents.host.stopping import StopSignal, due_signal


@pytest.mark.parametrize(
    ("waited", "signal", "expected"),
    [
        (0.0, "SIGUSR1", StopSignal.SAVE),
        (9.9, "SIGUSR1", StopSignal.SAVE),
        (10.0, "SIGUSR1", StopSignal.ASK),
        (39.9, "SIGUSR1", StopSignal.ASK),
        (40.0, "SIGUSR1", StopSignal.MAKE),
        (0.0, "", StopSignal.ASK),
        (30.0, "", StopSignal.MAKE),
        (-5.0, "", StopSignal.ASK),
    ],
)
def test_a_job_saves_first_is_asked_next_and_forced_last(waited: float, signal: str, expected: StopSignal) -> None:
    assert due_signal(waited, signal, drain_seconds=30.0, save_limit_seconds=10.0) is expected
