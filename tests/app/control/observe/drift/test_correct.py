"""Corrections: bounded, backed by evidence, in few steps one way, and none for noise."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import log
from typing import Any

import pytest

from app.control.domain.corrected import factor_at
from app.control.domain.snapshot import Correction
from app.control.observe.drift.correct import ProfileCorrection, ProfileEvidence, update_correction
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.rows import read_correction, write_correction
from app.control.observe.drift.tuning import DriftTuning
from tests.support.soak import scaled

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
KEY = "resnet/fp16/v100"
SETTINGS = DriftTuning()
BESIDE = (("bert/fp16", 0.2),)
PLACES = {1: (10, 30, 100), 8: (10, 30, 100)}


def observation(minute: int, ratio: float | None = 1.0, **fields: Any) -> Observation:
    known = Observation(KEY, 7, 8, 30, "i-1", NOON + timedelta(minutes=minute), ratio, 0.9)
    return replace(known, **fields)


def observed(ratio: float, minutes: int = 20, seed: int = 0, noise: float = 0.0, **fields: Any) -> list[Observation]:
    draw = random.Random(seed)
    return [
        observation(minute, ratio * (1 + draw.gauss(0, noise)), instance=f"i-{number}", **fields)
        for minute in range(minutes)
        for number in range(2)
    ]


def corrected(
    before: ProfileCorrection, observations: list[Observation], now: datetime, fresh: int | None = None,
    margin: float = 0.0,
) -> ProfileCorrection:  # fmt: skip
    """Of the observations the filters have not seen the last `fresh`; all, where it is left out."""
    new = observations if fresh is None else observations[-fresh:]
    places = {batch: dict.fromkeys(points, margin) for batch, points in PLACES.items()}
    return update_correction(before, ProfileEvidence(observations, new, places), now, SETTINGS)


def at(minute: float) -> datetime:
    return NOON + timedelta(minutes=minute)


def course(
    truth: float, minutes: int, seed: int = 0, noise: float = 0.02, before: ProfileCorrection | None = None,
    start: int = 0, **fields: Any,
) -> list[ProfileCorrection]:  # fmt: skip
    """Minute by minute, with two instances whose true speed does not depend on the correction."""
    draw = random.Random(seed)
    known, observations, found = before or ProfileCorrection(KEY), list[Observation](), []
    for minute in range(start, start + minutes):
        for number in range(2):
            ratio = truth * (1 + draw.gauss(0, noise))
            observations.append(observation(minute, ratio, instance=f"i-{number}", **fields))
        known = corrected(known, observations, at(minute + 1), fresh=2)
        found.append(known)
    return found


def factor(found: ProfileCorrection, sm_percent: int = 30, batch: int = 8) -> float:
    return factor_at(found.correction, batch, sm_percent)


def factors(found: list[ProfileCorrection]) -> list[float]:
    """The latency factors where the copies run, each once."""
    all_of_them = [factor(correction) for correction in found]
    return [factor for number, factor in enumerate(all_of_them) if number == 0 or factor != all_of_them[number - 1]]


@pytest.mark.slow
@pytest.mark.parametrize("truth", [0.75, 0.85, 0.92, 1.08, 1.15, 1.3, 1.45])
def test_a_wrong_profile_is_corrected_one_way_in_few_steps_and_then_left_alone(truth: float) -> None:
    for seed in range(scaled(50, 5)):
        steps = factors(course(truth, 240, seed))
        assert abs(steps[-1] / truth - 1) <= 0.03
        assert steps == sorted(steps, reverse=truth < 1)
        assert len(steps) - 1 <= 5


@pytest.mark.parametrize("noise", [0.01, 0.02, 0.1])
def test_noise_alone_corrects_nothing(noise: float) -> None:
    for seed in range(scaled(50, 5)):
        assert factors(course(1.0, 240, seed, noise)) == [1.0]


def test_a_measured_place_gives_up_its_margin_and_others_keep_theirs_in_part() -> None:
    certain, uncertain = (
        corrected(ProfileCorrection(KEY), observed(0.85), at(21), margin=margin) for margin in (0.0, 0.16)
    )
    assert factor(certain) == pytest.approx(0.85, abs=0.02)
    assert factor(uncertain) == pytest.approx(0.85, abs=0.02)
    assert factor(certain, 100, 1) + 0.03 <= factor(uncertain, 100, 1) <= 1.0


def test_a_draft_gives_up_a_margin_of_any_size_and_is_wrong_only_where_it_is_faster_than_its_mean() -> None:
    shown = corrected(ProfileCorrection(KEY), observed(0.4), at(21), margin=log(2.5))
    assert factor(shown) == pytest.approx(0.4, abs=0.03)
    later = corrected(shown, observed(0.4, minutes=120), at(121), margin=log(2.5))
    assert (factor(later), later.alarm) == (factor(shown), "")
    faster = corrected(ProfileCorrection(KEY), observed(0.3), at(21), margin=log(2.5))
    assert (factor(faster), "0.3 times as long" in faster.alarm) == (0.4, True)


def test_what_the_margin_of_plans_covers_is_not_corrected() -> None:
    assert factors(course(1.025, 120)) == [1.0]


def test_a_correction_ends_at_its_bounds_and_says_so() -> None:
    last = course(2.0, 120)[-1]
    assert factor(last) == 1.5
    assert "2.0 times" in last.alarm
    assert factor(course(0.5, 120)[-1]) == 0.7


def test_a_correction_that_persists_says_that_the_profile_is_wrong() -> None:
    found = course(1.15, 120)
    assert found[30].alarm == ""
    assert "measure the profile again" in found[-1].alarm
    assert course(1.05, 120)[-1].alarm == ""


def test_too_few_minutes_show_nothing() -> None:
    few = [observation(minute, 1.5) for minute in range(SETTINGS.fewest - 1)]
    assert corrected(ProfileCorrection(KEY), few, at(20)).correction == Correction()


def test_one_broken_instance_accuses_itself_only() -> None:
    observations = [
        observation(minute, 3.0 if number == 0 else 1.0, instance=f"i-{number}")
        for minute in range(20)
        for number in range(3)
    ]
    assert corrected(ProfileCorrection(KEY), observations, at(20)).correction == Correction()


def test_quick_batches_that_were_not_full_prove_nothing_and_slow_ones_do() -> None:
    assert factors(course(0.8, 60, fill=0.3)) == [1.0]
    assert factors(course(0.8, 60, impacts=BESIDE)) == [1.0]
    assert factors(course(1.15, 60, fill=0.3, impacts=BESIDE))[-1] == pytest.approx(1.15, rel=0.03)


@pytest.mark.slow
def test_a_region_that_runs_no_more_is_remembered_so_that_plans_do_not_swing_back() -> None:
    bad = course(1.2, 60)
    good = course(1.0, 600, before=bad[-1], start=60, sm_percent=60)
    assert all(abs(factor(correction) - factor(bad[-1])) <= 0.011 for correction in good)
    assert factor(good[-1], 60) == 1.0
    forgotten = course(1.0, 60, before=good[-1], start=60 + 8 * 1440, sm_percent=60)
    assert factor(forgotten[-1]) == pytest.approx(1.0, abs=0.03)


def test_the_same_shape_that_shows_otherwise_is_believed() -> None:
    slow = course(1.2, 60)
    assert factor(course(1.0, 120, before=slow[-1], start=60)[-1]) == pytest.approx(1.0, abs=0.03)


def test_a_changed_profile_begins_without_a_correction() -> None:
    slow = course(1.2, 60)[-1]
    renewed = corrected(slow, observed(1.2, profile=8), at(61))
    assert renewed.correction == Correction()
    assert "its correction was reset" in renewed.message


def test_a_step_names_what_it_rests_on() -> None:
    found = corrected(ProfileCorrection(KEY), observed(1.08), at(20))
    assert found.message == f"profile {KEY}: latency x 1.08 at batch 8, 30 % (was 1.00), in 40 minutes of 1 regions"
    (region,) = found.regions
    assert (region.name, region.n, region.at) == ("8@30", 40, at(19))


# Promises that are missed although execution is as expected


def test_promises_missed_at_planned_load_ask_for_a_little_more_step_by_step() -> None:
    found = course(1.0, 240, late=True)
    steps = factors(found)
    assert steps == sorted(steps)
    assert steps[-1] == pytest.approx(1.15, abs=0.015)
    assert "miss their SLO" in found[-1].alarm


def test_what_helped_stays() -> None:
    late = course(1.0, 15, late=True)
    kept = course(1.0, 240, before=late[-1], start=15, late=False)
    assert factors(kept) == [pytest.approx(1.05, abs=0.015)]


def test_lateness_that_execution_explains_is_not_charged_twice() -> None:
    slow = course(1.15, 5, late=True)
    found = course(1.15, 100, before=slow[-1], start=5, late=False)
    assert found[-1].late == 0
    assert factor(found[-1]) == pytest.approx(1.15, rel=0.03)


def test_a_late_minute_now_and_then_asks_for_nothing() -> None:
    observations = [observation(minute, 1.0, late=minute % 4 == 0) for minute in range(60)]
    assert corrected(ProfileCorrection(KEY), observations, at(60)).correction == Correction()


# Memory and power


def test_memory_taken_beyond_the_assigned_is_planned_for() -> None:
    found = corrected(ProfileCorrection(KEY), observed(1.0, memory_ratio=1.08), at(20))
    assert found.correction == Correction(memory_factor=1.08)


def test_watts_are_corrected_outside_their_dead_band() -> None:
    assert corrected(ProfileCorrection(KEY), observed(1.0, power_ratio=1.05), at(20)).correction == Correction()
    found = corrected(ProfileCorrection(KEY), observed(1.0, power_ratio=1.3), at(20))
    assert found.correction == Correction(power_factor=1.15)


def test_a_correction_survives_its_leader() -> None:
    known = course(1.15, 60)[-1]
    row = write_correction(known, at(60))
    assert read_correction(row) == known


# Regions of a curve


def together(
    truths: dict[tuple[int, tuple[tuple[str, float], ...]], float], minutes: int,
    before: ProfileCorrection | None = None, start: int = 0, seed: int = 0,
) -> list[ProfileCorrection]:  # fmt: skip
    """Minute by minute, one instance for each SM% and its neighbours, with its true ratio."""
    draw = random.Random(seed)
    known, observations, found = before or ProfileCorrection(KEY), list[Observation](), []
    for minute in range(start, start + minutes):
        for (sm_percent, impacts), truth in truths.items():
            ratio = truth * (1 + draw.gauss(0, 0.01))
            name = f"i-{sm_percent}-{impacts}"
            observations.append(observation(minute, ratio, sm_percent=sm_percent, impacts=impacts, instance=name))
        known = corrected(known, observations[-30 * len(truths) :], at(minute + 1), fresh=len(truths))
        found.append(known)
    return found


def test_a_range_that_turns_slower_is_corrected_there_only_and_within_minutes() -> None:
    usual = together({(20, ()): 1.0, (60, ()): 1.0, (100, ()): 1.0}, 60)
    found = together({(20, ()): 1.2, (60, ()): 1.0, (100, ()): 1.0}, 60, usual[-1], 60, seed=1)
    assert factor(found[5], 20) == pytest.approx(1.2, abs=0.03)
    for sm_percent in (60, 100):
        assert {factor(correction, sm_percent) for correction in found} <= {0.99, 1.0, 1.01}
    assert len(factors_at(found, 20)) <= 3


def factors_at(found: list[ProfileCorrection], sm_percent: int) -> list[float]:
    all_of_them = [1.0, *(factor(correction, sm_percent) for correction in found)]
    return [each for number, each in enumerate(all_of_them) if number == 0 or each != all_of_them[number - 1]]


def test_what_returns_to_the_declared_is_taken_back() -> None:
    slow = together({(20, ()): 1.2, (60, ()): 1.0}, 60)
    found = together({(20, ()): 1.0, (60, ()): 1.0}, 60, slow[-1], 60, seed=1)
    assert factor(found[-1], 20) == pytest.approx(1.0, abs=0.02)


def test_what_is_slow_beside_one_neighbour_corrects_what_neighbours_do_and_not_the_curve() -> None:
    other = (("vit/fp16", 0.2),)
    found = together({(30, ()): 1.0, (30, BESIDE): 1.2, (30, other): 1.0}, 60)[-1]
    assert factor(found) == pytest.approx(1.0, abs=0.02)
    assert found.correction.sensitivity_factor == pytest.approx((1.2 * 1.2 - 1) / 0.2, rel=0.1)


@pytest.mark.slow
def test_a_steady_load_changes_nothing_in_a_thousand_cycles() -> None:
    sides: tuple[tuple[tuple[str, float], ...], ...] = ((), BESIDE)
    truths = {(sm, beside): 1.0 for sm in (10, 30, 60, 100) for beside in sides}
    for seed in range(scaled(10, 1)):
        found = together(truths, 1000, seed=seed)
        assert {correction.correction for correction in found} == {Correction()}
    learned = together(dict.fromkeys(truths, 1.2), 60)
    kept = together(dict.fromkeys(truths, 1.2), 1000, learned[-1], 60, seed=1)
    assert {correction.correction for correction in kept} == {learned[-1].correction}


def test_a_second_step_comes_early_only_if_something_is_slower_than_planned() -> None:
    slow = together({(20, ()): 1.2, (60, ()): 1.0}, 5)[-1]
    assert slow.at is not None
    early = together({(20, ()): 1.2, (60, ()): 1.3}, 5, slow, 5, seed=1)
    assert factor(early[-1], 60) == pytest.approx(1.3, abs=0.04)
