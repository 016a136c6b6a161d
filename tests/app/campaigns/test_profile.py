"""The Profile that measurements make: valid as a manifest, and nothing in it that was not measured or declared."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.contract.campaigns import CopySetting, MeasuredSetting
from app.campaigns.choosing import choose
from app.campaigns.limits import grid
from app.campaigns.profile import ProfileSubject, profile_name, profile_of
from app.manifests.drafts import describe_draft, find_q90_factor
from app.manifests.reader import read
from app.manifests.validate import validate
from app.store.fleet.campaigns import SettingFailure

AT = datetime(2026, 6, 1, tzinfo=UTC)
SUBJECT = ProfileSubject("resnet50", "fp16", "v100-16gb", 1530)


def measured(batch: int, share: float, latency_ms: float, clock_mhz: int = 1530, **fields: Any) -> MeasuredSetting:
    setting = CopySetting(batch, share, clock_mhz)
    known: dict[str, Any] = {"spread_ms": 0.01 * latency_ms, "samples": 20, "memory_gib": 1.0}
    return MeasuredSetting(1, setting, AT, latency_ms, **(known | fields))


def test_watts_are_above_the_least_idle_reading_by_share() -> None:
    found = [
        measured(1, 50.0, 8.0, idle_w=40.0, power_w=140.0, start_seconds=2.0),
        measured(8, 50.0, 20.0, idle_w=60.0, power_w=160.0, start_seconds=3.5),
        measured(1, 100.0, 6.0, idle_w=41.0, power_w=240.0),
    ]
    spec = profile_of(SUBJECT, found).manifest["spec"]
    assert spec["powerW"] == {"50": 110.0, "100": 200.0}
    assert spec["startSeconds"] == 3.5


def test_what_was_not_measured_is_kept_from_the_declared_profile() -> None:
    declared = {"pressure": 0.4, "sensitivity": 0.2, "cpuCores": 2, "powerW": {"100": 150}, "startSeconds": 9}
    subject = ProfileSubject("resnet50", "fp16", "v100-16gb", 1530, "own-name", declared)
    made = profile_of(subject, [measured(1, 100.0, 5.0)])
    assert made.left_out_error is None
    assert made.manifest["metadata"] == {"name": "own-name"}
    kept = {field: made.manifest["spec"].get(field) for field in declared}
    assert kept == {**declared, "startSeconds": None}


def test_memory_never_falls_as_the_batch_grows() -> None:
    found = [measured(1, 100.0, 5.0, memory_gib=2.0), measured(4, 100.0, 9.0, memory_gib=1.5)]
    found.append(measured(8, 100.0, 15.0, memory_gib=0.0))
    assert profile_of(SUBJECT, found).manifest["spec"]["memoryGib"] == {"1": 2.0, "4": 2.0, "8": 2.0}


def test_a_second_clock_gives_the_exponent() -> None:
    found = [
        measured(batch, 100.0, 5.0 * batch * (1530 / clock) ** 0.5, clock)
        for batch in (1, 4, 8)
        for clock in (765, 1530)
    ]
    assert profile_of(SUBJECT, found).manifest["spec"]["clockExponent"] == pytest.approx(0.5, abs=0.05)


def test_watts_at_a_lower_clock_give_the_exponent_of_power() -> None:
    found = [
        measured(1, share, 5.0, clock, idle_w=40.0, power_w=40.0 + 2.0 * share * (clock / 1530) ** 2.4)
        for share in (20.0, 60.0, 100.0)
        for clock in (765, 1530)
        if (share, clock) != (60.0, 1530)
    ]
    spec = profile_of(SUBJECT, found).manifest["spec"]
    assert spec["powerW"] == pytest.approx({"20": 40.0, "60": 120.0, "100": 200.0}, rel=0.01)
    assert spec["powerExponent"] == pytest.approx(2.4, abs=0.01)
    assert (
        "powerExponent"
        not in profile_of(SUBJECT, [measured(1, 100.0, 5.0, idle_w=40.0, power_w=90.0)]).manifest["spec"]
    )


def test_between_what_was_measured_the_table_has_the_curve_at_every_setting_of_the_campaign() -> None:
    offered = grid((1, 2, 4, 8, 16, 32), (5, 10, 20, 50, 80, 100), (1530,))
    corners = [(1, 10.0), (1, 100.0), (16, 10.0), (16, 100.0), (4, 20.0), (4, 80.0)]
    found = [measured(b, share, (2.0 + b) * 100.0 / share, memory_gib=1.0 + b / 16) for b, share in corners]
    spec = profile_of(SUBJECT, found, offered).manifest["spec"]
    assert list(spec["latencyMs"]) == ["1", "2", "4", "8", "16"]
    assert list(spec["latencyMs"]["8"]) == ["10", "20", "50", "80", "100"]
    for batch, share in ((2, 50), (8, 20), (8, 50), (16, 80)):
        assert spec["latencyMs"][str(batch)][str(share)]["mean"] == pytest.approx(
            (2.0 + batch) * 100.0 / share, rel=0.1
        )
    assert spec["memoryGib"] == {"1": 1.0625, "2": 1.25, "4": 1.25, "8": 2.0, "16": 2.0}


@pytest.mark.slow
@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(st.sampled_from([1, 2, 8, 32]), st.sampled_from([10.0, 30.0, 70.0, 100.0]), st.floats(0.1, 1e4)),
        min_size=1,
        max_size=12,
        unique_by=lambda point: point[:2],
    )
)
def test_the_profile_of_any_measurements_is_valid(points: list[tuple[int, float, float]]) -> None:
    made = profile_of(SUBJECT, [measured(*point) for point in points])
    _, faults = validate(read(json.dumps([made.manifest]).encode(), "json"), offline=True)
    assert faults == []


def test_names_are_dns_labels() -> None:
    assert profile_name("resnet50", "FP16_x", "a100.80gb") == "resnet50-fp16-x-a100-80gb"
    assert len(profile_name("m" * 60, "v" * 60, "g" * 60)) == 63


def failed(setting: CopySetting, reason: str) -> SettingFailure:
    return SettingFailure(setting, reason)


def test_a_setting_that_failed_twice_is_given_up_with_larger_batches() -> None:
    known = grid([1, 4, 16], [100], [1530])
    broken = failed(CopySetting(4, 100.0, 1530), "start_failed")
    assert choose(known, [], [broken, broken], 0.04, 16) == CopySetting(1, 100.0, 1530)
    assert choose(known, [], [broken], 0.04, 16) == CopySetting(16, 100.0, 1530)
    assert choose(known, [], [failed(CopySetting(1, 100.0, 1530), "start_failed")] * 2, 0.04, 16) is None


def test_a_batch_that_is_too_slow_at_a_small_share_is_still_measured_at_larger_ones() -> None:
    known = grid([1, 16], [10, 50], [1530])
    slow = failed(CopySetting(1, 10.0, 1530), "not_measured")
    assert choose(known, [], [slow, slow], 0.04, 16) == CopySetting(16, 50.0, 1530)
    ended = failed(CopySetting(1, 10.0, 1530), "start_failed")
    assert choose(known, [], [slow, slow, ended], 0.04, 16) is None, "once its copy was not even up"


def test_a_draft_is_as_uncertain_as_its_left_out_errors_show() -> None:
    found = [measured(batch, 100.0, ms) for batch, ms in ((1, 4.0), (2, 9.0), (4, 7.0), (8, 30.0))]
    draft, accepted = (profile_of(replace(SUBJECT, error_goal=goal), found).manifest["spec"] for goal in (0.1, 1.0))
    error = draft["leftOutError"]
    assert error == accepted["leftOutError"] > 0.5
    assert describe_draft(draft) == f"draft, error {100 * error:.0f} % (goal 10 %)"
    assert describe_draft({"leftOutError": 0.1004}) == "draft, error above 10 % (goal 10 %)"
    assert (describe_draft(accepted), accepted["errorGoal"]) == ("", 1.0)
    for spec, least in ((draft, find_q90_factor(error)), (accepted, 1.0)):
        ratios = [value["q90"] / value["mean"] for row in spec["latencyMs"].values() for value in row.values()]
        assert min(ratios) >= 0.9999 * least
    assert draft["latencyMs"]["1"]["100"]["mean"] == accepted["latencyMs"]["1"]["100"]["mean"]
    assert draft["latencyMs"]["1"]["100"]["q90"] > accepted["latencyMs"]["1"]["100"]["q90"]
