"""Uncertain values of profiles, and the numbers that plans count on."""

from __future__ import annotations

import json

import pytest

from app.manifests.model import Kind, WrittenSpec
from app.manifests.reader import read
from app.manifests.uncertain import profile_at, value_at
from app.manifests.validate import validate
from tests.app.manifests.bad import profile

SPREAD = "{mean: 4, q90: 5, n: 16, at: 2026-11-23T10:00:00Z, source: measured}"
EVERY_VALUE = profile(
    latencyMs=f"{{1: {{10: {SPREAD}, 20: {SPREAD}, 100: 2}}}}",
    memoryGib=f"{{1: {SPREAD}}}",
    cpuCores=SPREAD,
    hostMemoryGib=SPREAD,
    pressure="{10: {mean: 0.5, q90: 0.6}, 100: 0.7}",
    sensitivity="{mean: 0.25, q90: 0.3, source: learned}",
    powerW="{mean: 100, q90: 120}",
    clockExponent="{mean: 0.8, q90: 1}",
    powerExponent="{mean: 2, q90: 2.5}",
    startSeconds=SPREAD,
)


def spec(text: str = EVERY_VALUE) -> WrittenSpec:
    (manifest,), faults = validate(read(text.encode(), "yaml"))
    assert faults == []
    assert manifest.kind is Kind.PROFILE
    return manifest.spec


def test_every_value_of_a_profile_may_state_its_spread_and_keeps_it_as_written() -> None:
    written = spec()
    assert written["latencyMs"]["1"]["10"] == {
        "mean": 4,
        "q90": 5,
        "n": 16,
        "at": "2026-11-23T10:00:00Z",
        "source": "measured",
    }
    again = {"apiVersion": "gpuwright/v1", "kind": "Profile", "metadata": {"name": "x"}, "spec": written}
    assert spec(json.dumps(again)) == written


def test_plans_count_on_the_quantile_of_every_value() -> None:
    upper = profile_at(spec(), 0.9)
    assert upper["latencyMs"] == {"1": {"10": 5, "20": 5, "100": 2}}
    assert upper["memoryGib"] == {"1": 5}
    assert upper["pressure"] == {"10": 0.6, "100": 0.7}
    assert (upper["cpuCores"], upper["hostMemoryGib"], upper["startSeconds"]) == (5, 5, 5)
    assert (upper["sensitivity"], upper["powerW"], upper["clockExponent"]) == (0.3, 120, 1)


def test_the_middle_is_the_mean() -> None:
    middle = profile_at(spec(), 0.5)
    assert middle["latencyMs"]["1"] == {"10": 4, "20": 4, "100": 2}
    assert (middle["pressure"]["10"], middle["sensitivity"], middle["powerExponent"]) == (0.5, 0.25, 2)


def test_a_power_exponent_counts_with_its_lower_values() -> None:
    assert profile_at(spec(), 0.9)["powerExponent"] == pytest.approx(2 * 2 / 2.5)


@pytest.mark.parametrize("quantile", [0.5, 0.6, 0.75, 0.9, 0.95, 0.99])
def test_a_certain_number_is_the_same_at_every_quantile(quantile: float) -> None:
    assert value_at(7, quantile) == 7
    assert value_at({"mean": 7, "q90": 7}, quantile) == 7


def test_a_higher_quantile_is_a_higher_value() -> None:
    values = [value_at({"mean": 4, "q90": 5}, quantile) for quantile in (0.5, 0.6, 0.8, 0.9, 0.95, 0.99)]
    assert values == sorted(values)
    assert values[0] == 4
    assert values[3] == 5
    zero = [value_at({"mean": 0, "q90": 0.1}, quantile) for quantile in (0.5, 0.7, 0.9, 0.99)]
    assert zero == sorted(zero)
    assert zero[2] == pytest.approx(0.1)


def test_latency_never_rises_with_the_share_at_any_quantile() -> None:
    crossing = profile(latencyMs="{1: {10: {mean: 4, q90: 4.1}, 20: {mean: 2, q90: 4.1}}}")
    for quantile in (0.5, 0.9, 0.95, 0.99):
        curve = profile_at(spec(crossing), quantile)["latencyMs"]["1"]
        assert curve["10"] >= curve["20"]


def test_pressure_stays_within_one() -> None:
    assert profile_at(spec(profile(pressure="{mean: 0.5, q90: 1}")), 0.99)["pressure"] == 1.0
