"""What fails rests, longer each time, until it is wanted otherwise or has been well for a while."""

from __future__ import annotations

import pytest

from agents.keeper.failures import Failures
from tests.support.nodes import served

WANTED = served("a", sm=30)


def rests(failures: Failures, since: float) -> float:
    """Seconds until it is tried again."""
    return next(step / 4 for step in range(1000) if not failures.resting([WANTED], since + step / 4))


def test_each_failure_rests_twice_as_long_as_the_last_up_to_a_minute() -> None:
    failures, now, found = Failures(), 0.0, []
    for _ in range(8):
        failures.note(WANTED, "exited", "it ended", 0.0, now)
        found.append(rests(failures, now))
        now += found[-1]
    assert found == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_copy_that_was_ready_for_long_begins_a_new_count() -> None:
    failures = Failures()
    for _ in range(5):
        failures.note(WANTED, "exited", "it ended", 0.0, 0.0)
    failures.note(WANTED, "exited", "it ended", 61.0, 100.0)
    assert rests(failures, 100.0) == 1


def test_what_is_wanted_otherwise_need_not_rest() -> None:
    failures = Failures()
    failures.note(WANTED, "exited", "it ended", 0.0, 0.0)
    assert failures.resting([served("a", sm=40)], 0.1) == {}


def test_what_is_not_wanted_any_more_is_forgotten() -> None:
    failures = Failures()
    failures.note(WANTED, "exited", "it ended", 0.0, 0.0)
    assert failures.resting([], 0.1) == {}
    assert failures.resting([WANTED], 0.2) == {}


@pytest.mark.parametrize("count", [1, 2])
def test_why_it_rests_is_said_with_how_often_it_failed(count: int) -> None:
    failures = Failures()
    for _ in range(count):
        failures.note(WANTED, "exited", "it ended", 0.0, 0.0)
    assert failures.resting([WANTED], 0.1) == {"a": ("exited", f"it ended; failed {count} times")}
