"""The pace of a job's steps."""

from __future__ import annotations

import pytest

from agents.programs.train.main import StepPace, parse_speeds, speed_at


@pytest.mark.parametrize(("sm_percent", "expected"), [(5, 0.5), (10, 1.0), (30, 3.0), (50, 5.0), (75, 5.5), (100, 6.0)])
def test_speed_is_straight_between_the_points_of_the_profile(sm_percent: float, expected: float) -> None:
    assert speed_at(parse_speeds("10:1,50:5,100:6"), sm_percent) == pytest.approx(expected)


def test_a_share_above_the_last_point_is_no_faster() -> None:
    assert speed_at(parse_speeds("10:1,50:5"), 80) == 5


@pytest.mark.parametrize("text", ["", "10", "10:", "0:1", "101:1", "10:0", "10:-1", "10:inf", "nan:1", "10:1,10:2"])
def test_a_profile_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse_speeds(text)


def test_steps_become_due_at_the_pace_and_no_fraction_is_lost() -> None:
    pace = StepPace(2.5, now=100.0)
    assert [pace.due(100.0 + tenth / 10) for tenth in range(1, 21)].count(1) == 5


def test_a_job_that_was_stopped_for_an_hour_does_not_make_up_for_it() -> None:
    pace = StepPace(10.0, now=0.0)
    assert pace.due(3600.0) == 10
