"""The policy's objective and carbon intensity are read strictly; a fault names the line and what is allowed there."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from app.manifests.faults import ManifestsRefused
from app.manifests.goals import row_at
from app.manifests.offline import Input, load

CSV = "time,gramsPerKwh\n2026-11-23T00:00:00Z,300\n\n2026-11-23T06:00:00+01:00, 120.5\n"


def faults(**spec: object) -> list[str]:
    policy = {"apiVersion": "gpuwright/v1", "kind": "Policy", "metadata": {"name": "default"}, "spec": spec}
    try:
        load([Input("policy.json", json.dumps(policy).encode(), "json")])
    except ManifestsRefused as refused:
        return [f"{fault.field}: {fault}" for fault in refused.faults]
    return []


@pytest.mark.parametrize(
    "objective", ["money", "energy", "throughput", {"money": 0, "energyKwh": 2}, {"carbonKg": 0.1}, {}]
)
def test_words_and_weights_are_objectives(objective: object) -> None:
    assert faults(objective=objective, carbon={"pricePerTonne": 80, "intensity": CSV}) == []


@pytest.mark.parametrize(
    ("spec", "place", "allowed"),
    [
        ({"objective": "power"}, "spec.objective", "money, energy, throughput"),
        ({"objective": {"energyKwh": -1}}, "spec.objective.energyKwh", "a number 0..1e12"),
        ({"objective": {"watts": 1}}, "spec.objective.watts", "one of carbonKg, energyKwh, money"),
        ({"objective": {"money": 0}}, "spec.objective", "at least one weight over 0"),
        ({"objective": {"carbonKg": 1}}, "spec.objective.carbonKg", "a policy with carbon.intensity"),
        ({"carbon": {"intensity": "at,grams\n"}}, "spec.carbon.intensity", "line 1"),
        ({"carbon": {"intensity": CSV.replace("300", "-3")}}, "spec.carbon.intensity", "line 2: '-3' is not"),
        ({"carbon": {"intensity": CSV.replace("300", "300,1")}}, "spec.carbon.intensity", "line 2: 3 columns"),
        ({"carbon": {"intensity": CSV.replace("00:00:00Z", "00:00:00")}}, "spec.carbon.intensity", "time zone"),
        ({"carbon": {"intensity": CSV.replace("+01:00", "+07:00")}}, "spec.carbon.intensity", "line 4: 2026-11-23T06"),
        ({"carbon": {"intensity": "time,gramsPerKwh\n"}}, "spec.carbon.intensity", "at least one row"),
        ({"carbon": {"intensity": CSV, "pricePerTonne": -1}}, "spec.carbon.pricePerTonne", "a number 0..1e12"),
    ],
)
def test_faults_name_the_place_and_what_is_allowed(spec: dict[str, object], place: str, allowed: str) -> None:
    found = faults(**spec)
    assert len(found) == 1
    assert found[0].startswith(f"{place}: ") and allowed in found[0]


def test_a_row_holds_until_the_next_and_the_first_also_before() -> None:
    def grams(hour: int, minute: int = 0, day: int = 23) -> float:
        return row_at(CSV, datetime(2026, 11, day, hour, minute, tzinfo=UTC))[1]

    assert [grams(0, day=1), grams(4, 59), grams(5), grams(23)] == [300, 300, 120.5, 120.5]
    assert row_at(CSV, None)[1] == 300
