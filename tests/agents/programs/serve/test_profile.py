"""The stub takes as long as its profile says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.programs.serve.profile import ProfileError, StubProfile, interpolate, read_file, read_words

LATENCY = {"1": {"10": 20, "100": 10}, "9": {"10": 100, "50": 60, "100": 50}}


def test_a_file_is_read_like_the_spec_of_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    spec = {"latencyMs": LATENCY, "memoryGib": {"1": 1.0, "9": 2.0}, "startSeconds": 2, "pressure": 0.7}
    file.write_text(json.dumps(spec))
    profile = read_file(file)
    assert profile.exec_seconds(1, 55) == pytest.approx(0.015)  # half-way between the points
    assert profile.exec_seconds(9, 30) == pytest.approx(0.080)
    assert profile.exec_seconds(5, 100) == pytest.approx(0.030)  # between the batches
    assert profile.needs_gib(5) == pytest.approx(1.5)
    assert profile.start_seconds == 2


def test_of_an_uncertain_value_the_mean_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    spread = {"mean": 20, "q90": 25, "n": 16, "source": "measured"}
    spec = {"latencyMs": {"1": {"10": spread, "100": 10}}, "memoryGib": {"1": {"mean": 1, "q90": 2}}}
    file.write_text(json.dumps(spec | {"startSeconds": {"mean": 3, "q90": 4}}))
    profile = read_file(file)
    assert profile.exec_seconds(1, 10) == pytest.approx(0.020)
    assert profile.needs_gib(1) == 1
    assert profile.start_seconds == 3


def test_words_say_the_same_as_a_file() -> None:
    assert read_words("1:10=20,100=10;9:10=100,50=60,100=50") == (
        (1.0, ((10.0, 20.0), (100.0, 10.0))),
        (9.0, ((10.0, 100.0), (50.0, 60.0), (100.0, 50.0))),
    )
    assert StubProfile(read_words("8:22")).exec_seconds(1, 10) == pytest.approx(0.022)


def test_without_a_profile_nothing_takes_time_or_room() -> None:
    assert StubProfile().exec_seconds(8, 30) == 0.0
    assert StubProfile().needs_gib(8) == 0.0


@pytest.mark.parametrize("text", ["x", "1", "1:x", "x:1", "1:10=x", "1:-5", "1:nan", "1:1e99", "1:10=5,20", ":"])
def test_words_that_are_no_latencies_are_refused(text: str) -> None:
    with pytest.raises(ProfileError):
        read_words(text)


@pytest.mark.parametrize(
    "text",
    [
        "[]", "{", '{"latencyMs": 5}', '{"latencyMs": {"1": {"10": true}}}', '{"startSeconds": "soon"}',
        f'{{"startSeconds": 1{400 * "0"}}}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_profile_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "profile.json"
    file.write_text(text)
    with pytest.raises(ProfileError, match=r"profile\.json"):
        read_file(file)


@pytest.mark.slow
@given(st.dictionaries(st.integers(1, 100), st.floats(0, 1000), min_size=1), st.floats(0, 120))
def test_a_curve_never_leaves_its_points(points: dict[int, float], x: float) -> None:
    curve = tuple(sorted((float(key), value) for key, value in points.items()))
    assert min(points.values()) - 1e-6 <= interpolate(curve, x) <= max(points.values()) + 1e-6
    assert all(interpolate(curve, key) == pytest.approx(value) for key, value in curve)
