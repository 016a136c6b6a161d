"""A job that must go is asked before it is made to."""

from __future__ import annotations

import pytest

from agents.host.stopping import Push, push


@pytest.mark.parametrize(
    ("waited", "signal", "expected"),
    [
        (0.0, "SIGUSR1", Push.SAVE),
        (9.9, "SIGUSR1", Push.SAVE),
        (10.0, "SIGUSR1", Push.ASK),
        (39.9, "SIGUSR1", Push.ASK),
        (40.0, "SIGUSR1", Push.MAKE),
        (0.0, "", Push.ASK),
        (30.0, "", Push.MAKE),
        (-5.0, "", Push.ASK),
    ],
)
def test_a_job_saves_first_is_asked_next_and_forced_last(waited: float, signal: str, expected: Push) -> None:
    assert push(waited, signal, drain_seconds=30.0) is expected
