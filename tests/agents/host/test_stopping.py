"""A job that must stop is asked first and forced later."""

from __future__ import annotations

import pytest

from agents.host.stopping import StopSignal, due_signal, limit_stay_seconds


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


@pytest.mark.parametrize(
    ("drain", "grace", "stays"),
    [
        (60.0, 191.0, 116.0),  # as its own ReplicaSet gives it
        (300.0, 461.0, 150.0),
        (60.0, 60.0, 25.0),  # who deleted it gave it less
        (60.0, 10.0, 0.0),
        (60.0, 1.0, 0.0),
        (0.0, 1000.0, 120.0),
    ],
)
def test_a_copy_that_others_end_stays_as_long_as_it_can_drain_after_that(
    drain: float, grace: float, stays: float
) -> None:  # fmt: skip
    assert limit_stay_seconds(drain, grace) == stays
