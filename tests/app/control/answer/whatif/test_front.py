"""A front has the best plan found of each measure, and no plan that another beats in everything."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from app.control.answer.whatif.change import WhatIfChange
from app.control.answer.whatif.question import WhatIf
from app.control.domain.snapshot import Snapshot
from tests.app.control.answer.whatif.worlds import snapshot

CSV = "time,gramsPerKwh\n2026-01-01T00:00:00Z,400\n"


def world() -> Snapshot:
    """Cheap GPUs draw more, and each model has a small variant that is less accurate and three times as fast."""
    known = snapshot(search=50.0, ads=50.0)
    declared = []
    for item in known.declared:
        spec = dict(item.spec)
        if item.kind == "Policy":
            spec["carbon"] = {"intensity": CSV}
        if item.kind == "Model":
            spec["variants"] = [*spec["variants"], {"name": "small", "accuracy": 0.7}]
        if item.kind == "Profile":
            spec["powerW"] = 48.0 if "t4" in item.name else 10.0
            faster = {b: {sm: ms / 3 for sm, ms in curve.items()} for b, curve in spec["latencyMs"].items()}
            small = {**spec, "variant": "small", "latencyMs": faster}
            declared.append(replace(item, name=f"{item.name}-small", spec=small))
        declared.append(replace(item, spec=spec))
    return replace(known, declared=tuple(declared))


@pytest.mark.slow
def test_each_end_is_better_than_money_alone_in_its_own_measure() -> None:
    answer: Any = WhatIf(world(), WhatIfChange(), seconds=300.0, work=4, with_front=True).answered()
    front = answer["front"]
    named = {name: point for point in front for name in point["best"]}
    assert named.keys() == {"money", "energy", "carbon", "accuracy"}
    assert named["energy"]["energyKwh"] < named["money"]["energyKwh"]
    assert named["carbon"]["carbonKg"] < named["money"]["carbonKg"]
    assert named["accuracy"]["accuracy"] > named["money"]["accuracy"]
    assert named["accuracy"]["accuracy"] == 0.76
    assert named["money"]["moneyPerHour"] == min(point["moneyPerHour"] for point in front)
    for mine, other in permutations(front, 2):
        assert (
            other["moneyPerHour"] > mine["moneyPerHour"]
            or other["energyKwh"] > mine["energyKwh"]
            or other["accuracy"] < mine["accuracy"]
        )
    for point in front:
        assert point["unservedPerSecond"] == 0
        assert abs(point["carbonKg"] - 0.4 * point["energyKwh"]) < 1e-12
