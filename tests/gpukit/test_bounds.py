"""A run of the kit ends: a step begins nothing that there is no time for, and none begins after the ten minutes."""

from __future__ import annotations

import time
from pathlib import Path

from scripts.gpukit.apart import GRACE_SECONDS, KILL_SECONDS
from scripts.gpukit.recording import StepRecord
from scripts.gpukit.stand import KitOptions, StepTime
from scripts.gpukit.steps import STEPS
from scripts.gpukit.trial import ASK_SECONDS, CLOSING_SECONDS, TOTAL_SECONDS, Trial


def test_a_step_takes_what_it_has_time_for() -> None:
    enough, over = StepTime(float("inf")), StepTime(time.monotonic() - 1)
    assert [*enough.take([1, 2, 3])] == [1, 2, 3] and enough.left_out == 0
    assert [*over.take([1, 2, 3])] == [] and over.left_out == 3


def test_a_step_begins_nothing_that_may_take_longer_than_is_left() -> None:
    step_time = StepTime(float("inf"))
    taken = 0
    for _ in step_time.take(range(5)):
        taken += 1
        time.sleep(0.05)
        step_time.ends_at = time.monotonic() + 0.04
    assert taken == 1 and step_time.left_out == 4


def test_after_the_ten_minutes_no_step_begins(tmp_path: Path) -> None:
    trial = Trial(tmp_path, KitOptions(changes_settings=True))
    trial.began -= TOTAL_SECONDS - CLOSING_SECONDS
    for step in STEPS:
        trial.try_step(step)
    assert {record.why for record in trial.steps.values()} == {"the ten minutes were over"}
    assert {record.outcome for record in trial.steps.values()} == {"skipped"}


def test_without_the_owners_word_no_step_that_changes_settings_begins(tmp_path: Path) -> None:
    trial = Trial(tmp_path, KitOptions())
    changing = [step for step in STEPS if step.changes_settings]
    for step in changing:
        trial.try_step(step)
    refusal = StepRecord("skipped", "it changes settings, which only --change-settings allows")
    assert trial.steps == {"settings": refusal, "clocks": refusal}


def test_the_last_step_and_the_closing_end_within_the_ten_minutes() -> None:
    """Also if both must be killed."""
    assert (GRACE_SECONDS + 2 * KILL_SECONDS) * 2 + ASK_SECONDS <= CLOSING_SECONDS
