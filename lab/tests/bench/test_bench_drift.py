"""`bench drift` prints what docs/benchmarks.md says: each change under both laws of correction."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.control.observe.drift.correct import ProfileCorrection, ProfileEvidence
from app.control.observe.drift.minutes import Observation
from app.control.observe.drift.tuning import DriftTuning
from cli.main import main
from lab.bench import drift
from lab.bench.scalar_correction import ScalarCorrection

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.slow
def test_bench_drift_prints_the_rows_of_its_contract(capsys: pytest.CaptureFixture[str]) -> None:
    size = ("--gpus", "2", "--services", "1", "--seeds", "1", "--before", "2", "--minutes", "2", "--change", "range")
    assert main(["bench", "drift", *size, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["slower"], row["law"]) for row in rows] == [("range", "one factor"), ("range", "regions")]
    for row in rows:
        assert set(drift.SHOWN) <= row.keys()
        assert row["held_mean"] > 0


def test_one_factor_follows_the_slowest_shape_in_steps() -> None:
    law, known, factors = ScalarCorrection(), ProfileCorrection("resnet/fp16/v100"), []
    seen: list[Observation] = []
    for minute in range(30):
        at = NOON + timedelta(minutes=minute)
        usual = Observation(known.key, 7, 8, 60, "i-1", at, 1.0, 0.9)
        seen += [usual, replace(usual, sm_percent=30, instance="i-2", exec_ratio=1.2)]
        known = law(known, ProfileEvidence(seen), at + timedelta(minutes=1), DriftTuning())
        factors.append(known.correction.latency_factor)
    assert sorted(set(factors)) == [1.0, 1.15, 1.2]
