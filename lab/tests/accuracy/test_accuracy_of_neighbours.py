"""The accuracy benchmark's topics on neighbours and on unmeasured pairs, with data made here in the public formats."""

from __future__ import annotations

import csv
import json
import math
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from lab.accuracy import factors, interference
from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.factor_retraining import FIRST_PAIRS, THETA, retrained
from lab.accuracy.gavel import TYPES, read_gavel
from lab.accuracy.miso import IDLE, read_miso
from lab.data.missing_data import DataMissing
from solvers.factors.machine import FactorSample

FAMILIES = {"CNN": 0.8, "LSTM": 0.4, "MLP": 0.2, "GAN": 0.6}
JOBS = {f"{family} (batch size {batch})": heavy * batch**0.1 for family, heavy in FAMILIES.items() for batch in (8, 64)}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    _gavel(folder)
    _miso(folder)
    _parvagpu(folder)
    return folder


def _gavel(folder: Path) -> None:
    """Throughputs whose slowdown is 1 + the neighbour's weight; the heaviest pair does not fit."""
    table: dict[str, dict[str, dict[str, object]]] = {}
    for place, gpu_type in enumerate(TYPES):
        rows = table[gpu_type] = {}
        for job, heavy in JOBS.items():
            alone = 10 / heavy / (1 + place * heavy)
            row = rows[f"('{job}', 1)"] = {"null": alone, "('many', 4)": [1.0, 1.0]}
            for other, more in JOBS.items():
                slower = 0.0 if heavy * more > 1 else 1 / (1 + more)
                row[f"('{other}', 1)"] = [alone * slower, 1.0 * slower]
    path = folder / "gavel" / "simulation_throughputs.json"
    path.parent.mkdir()
    path.write_text(json.dumps(table))


def _miso(folder: Path) -> None:
    """Mixes of two or three of four jobs among seven places, each row twice in another order."""
    draw = np.random.default_rng(0)
    slices = np.array([[0.9, 0.95, 1], [0.5, 0.8, 1], [0.6, 0.9, 1], [0.8, 0.85, 1]])
    shared, alone = [], []
    for _ in range(40):
        jobs = draw.choice(4, draw.integers(2, 4))
        speeds = np.ones((3, 7))
        target = np.tile(np.array(IDLE)[:, None], 7)
        for at, job in enumerate(jobs):
            others = sum((other + 1) / 4 for place, other in enumerate(jobs) if place != at)
            speed = np.array([1 / (1 + others), 0.6 / (1 + 0.4 * others), 0.3 / (1 + 0.1 * others)])
            speeds[:, at], target[:, at] = speed / speed.max(), slices[job]
        for order in (np.arange(7), np.arange(7)[::-1]):
            shared.append(speeds[:, order])
            alone.append(target[:, order])
    (folder / "miso").mkdir()
    np.save(folder / "miso" / "input_data.npy", np.array(shared))
    np.save(folder / "miso" / "target_data.npy", np.array(alone))


def _parvagpu(folder: Path) -> None:
    (folder / "parvagpu" / "prof_data").mkdir(parents=True)
    for at, model in enumerate(("alpha", "beta", "gamma", "delta", "epsilon")):
        with (folder / "parvagpu" / "prof_data" / f"{model}.csv").open("w") as text:
            table = csv.writer(text)
            table.writerow(["Mig instance", "Batch size", "Workload Number", "Throughput", "Latency"])
            for slices, batch, processes in product((1, 2, 3, 4, 7), (1, 4, 16), (1, 2)):
                latency_s = 0.01 * (1 + at) * (1 + batch / 4) * processes / slices ** (0.2 + 0.15 * at)
                table.writerow([slices, batch, processes, round(batch / latency_s, 4), round(latency_s, 5)])
            table.writerow([1, 64, 5, 0, 0])  # did not fit


def map_rows(rows: list[AccuracyRow]) -> dict[str, AccuracyRow]:
    return {row.what: row for row in rows}


def test_gavel_is_read_without_what_did_not_fit(data: Path) -> None:
    table = read_gavel(data)
    assert table.families == sorted(FAMILIES)
    assert {each.run.against for pairs in table.pairs.values() for each in pairs} == {None}
    for each in table.pairs["k80"]:
        assert each.slowdown == pytest.approx(1 + JOBS[each.run.neighbours[0].model])


def test_a_mix_of_miso_counts_once_and_its_filling_is_no_job(data: Path) -> None:
    observations, traits = read_miso(data)
    assert len(traits.numbers) == 4
    assert max(len(each.run.neighbours) for each in observations) == 2
    assert {(each.run.sm_percent, each.run.against) for each in observations} == {(50, 100), (14, 100)}
    assert len({(each.run.mix) for each in observations}) <= 40


@pytest.mark.slow
def test_interference_is_judged_beside_each_baseline(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "FAMILY_SPLITS", 1)
    monkeypatch.setattr(interference, "BATCH_SPLITS", 1)
    monkeypatch.setattr(interference, "GPUS", 2)
    rows = map_rows(interference.rows(data))
    assert rows.keys() == {
        "interference.gavel", "interference.gavel.batches", "interference.gavel.measured", "colocation.gavel",
        "interference.miso",
    }  # fmt: skip
    for row in rows.values():
        assert row.baselines.keys() == {"additive", "linear", "gpulet"}
        assert row.n > 0
    assert rows["interference.miso"].ours < 1
    assert rows["interference.miso"].ours < min(rows["interference.miso"].baselines.values())
    assert 0 <= rows["colocation.gavel"].ours <= 100


@pytest.mark.slow
def test_pairs_never_measured_are_judged_beside_each_baseline(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(factors, "SEEDS", 1)
    monkeypatch.setattr(factors, "GAVEL_SEEDS", 1)
    monkeypatch.setattr(factors, "COUNTS", (20, 80))
    rows = map_rows(factors.rows(data))
    assert rows["ftrl.rmse"].baselines.keys() == {"matrix", "forest", "nearest"}
    assert rows["ftrl.rmse"].ours < min(rows["ftrl.rmse"].baselines.values())
    assert rows["ftrl.r2"].ours > 0.9
    assert rows["ftrl.microseconds"].ours > 0
    assert "better than nearest from 20 samples on" in rows["ftrl.rmse"].note
    course = rows["ftrl.prequential"]
    assert course.baselines["every pair"] < course.ours <= course.baselines["kept"], "learning again pays"
    assert course.n == 25 - FIRST_PAIRS
    assert "kept 0, every pair 19" in course.note


def test_a_machine_learns_again_only_when_what_came_since_has_missed_by_more_than_theta() -> None:
    """Three GPU types and ten models; the last three models' times turn out a hundred times those of the others."""
    pairs = [
        [FactorSample({"model": f"m{model}", "gpu type": kind}, {}, (0.1 * at + (5.0 if model >= 7 else 0.0),))]
        for model in range(10)
        for at, kind in enumerate(("k80", "p100", "v100"))
    ]
    before, whole = retrained(pairs[:21], THETA), retrained(pairs, THETA)
    assert before.refits == 0
    assert 1 <= whole.refits <= 3
    assert retrained(pairs, 0.0).refits == 30 - FIRST_PAIRS
    assert retrained(pairs, math.inf).refits == 0
    assert whole.mean_square < retrained(pairs, math.inf).mean_square


def test_missing_files_are_named(tmp_path: Path) -> None:
    for read in (interference.rows, factors.rows, read_miso):
        with pytest.raises(DataMissing, match=str(tmp_path)):
            read(tmp_path)
