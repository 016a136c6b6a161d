"""Loads made to find plans too low overspend no more hours than was asked for."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from lab.bench.risk import LOADS, hold_levels, score_load
from lab.bench.risk_plot import draw
from lab.forecast_scores import Trace, score
from solvers.forecast import expect


@pytest.mark.parametrize("load", LOADS)
def test_a_load_overspends_no_more_hours_than_asked_for(load: str) -> None:
    row = score_load(load, 0.2, seeds=2)
    assert row["hours"] == 30
    assert row["overspent"] <= row["chance_limit"]


@pytest.mark.parametrize("load", LOADS)
def test_loads_are_the_same_for_the_same_seed_and_come_back_to_the_usual_level(load: str) -> None:
    shapes = [hold_levels(LOADS[load](Random("7")), 7200.0) for _ in range(2)]
    levels = [[shape(at) for at in range(0, 7200, 10)] for shape in shapes]
    assert levels[0] == levels[1]
    assert min(levels[0]) == 1.0 < max(levels[0])


def test_a_hunted_plan_is_exceeded_by_no_more_than_the_hunter_adds() -> None:
    shape = hold_levels(LOADS["hunter"](Random("0")), 20_000.0)
    hunted, leapt = (score(expect, [Trace(shape, 0, 200.0, 18_000, exceeds)]) for exceeds in (0.04, 0.0))
    assert 1.0 < hunted.most < 1.05 < leapt.most


def test_the_picture_has_a_line_for_each_load(tmp_path: Path) -> None:
    row = {"missed": 0.01, "chance_limit": 0.1, "headroom": 0.2}
    rows = [{"load": load, "risk": risk, **row} for load in LOADS for risk in (0.2, 0.05)]
    draw(rows, tmp_path / "risk.svg")
    assert "<svg" in (tmp_path / "risk.svg").read_text()
