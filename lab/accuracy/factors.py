"""Pairs of a model and a GPU type that were never measured: a factorization machine against three others."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from math import log
from pathlib import Path

import numpy as np

from lab.accuracy.accuracy_row import AccuracyRow
from lab.accuracy.factor_baselines import BASELINES, PAIR
from lab.accuracy.factor_retraining import retraining_row
from lab.accuracy.gavel import FILE, TYPES, family, read_gavel
from lab.accuracy.latency_tables import PARVAGPU, PARVAGPU_COLUMNS
from lab.baselines.predictors import Predict
from lab.data.csv_rows import read_rows
from lab.data.missing_data import DataMissing
from solvers.factors.choice import learn_factors
from solvers.factors.machine import FactorSample
from solvers.interference.candidate import Floats

SEEDS = 5
GAVEL_SEEDS = 10
COUNTS = (25, 50, 100, 200, 400, 800)
TIMED = 2000
OURS = "ours"


def rows(data: Path) -> list[AccuracyRow]:
    """Returns errors of logarithms on parvagpu (latency and throughput) and gavel (throughput), and the time."""
    slices, trainings = _parvagpu(data), _gavel(data)
    left, worth, timed, pairs = _left_out(slices, SEEDS)
    train_left, train_worth, _, train_pairs = _left_out(trainings, GAVEL_SEEDS)
    curve = _measure_errors(slices)
    better = next((count for count, each in curve.items() if each[OURS] < each["nearest"]), None)
    shown = ", ".join(f"{count}: {each[OURS]:.2f} / {each['nearest']:.2f}" for count, each in curve.items())
    note = f"latency and throughput, a fifth of model and slice pairs left out; samples: ours / nearest {shown}"
    from_count = "never" if better is None else f"from {better} samples on"
    return [
        _row("ftrl.rmse", "parvagpu", pairs, left, "ln", f"{note}; better than nearest {from_count}"),
        _row(
            "ftrl.r2", "parvagpu", pairs, worth, "", "both targets together; a fifth of model and slice pairs left out"
        ),
        AccuracyRow(
            "ftrl.microseconds",
            "parvagpu",
            TIMED,
            timed.pop(OURS),
            timed,
            "us",
            "one prediction of both targets, one at a time",
        ),
        _row("ftrl.rmse.gavel", str(FILE), train_pairs, train_left, "ln", "training steps a second on V100, P100, K80"),
        _row("ftrl.r2.gavel", str(FILE), train_pairs, train_worth, "", "as above"),
        retraining_row("ftrl.prequential", "parvagpu", slices, SEEDS),
        retraining_row("ftrl.prequential.gavel", str(FILE), trainings, GAVEL_SEEDS),
    ]


def _parvagpu(data: Path) -> list[FactorSample]:
    """Reads each model on each MIG slice, a GPU type of its own; what did not fit has throughput 0."""
    files = sorted((data / PARVAGPU).glob("*.csv"))
    if not files:
        raise DataMissing(f"{data / PARVAGPU} holds no profile; --data names a folder with {PARVAGPU}")
    samples = []
    for path in files:
        for row in read_rows(path, PARVAGPU_COLUMNS):
            latency_s, per_second = float(row["Latency"]), float(row["Throughput"])
            if latency_s > 0 and per_second > 0:
                named = {"batch": row["Batch size"], "processes": row["Workload Number"]}
                kinds = {"model": path.stem, "gpu type": row["Mig instance"], **named}
                sizes = {f"ln {kind}": log(int(which)) for kind, which in kinds.items() if kind != "model"}
                samples.append(FactorSample(kinds, sizes, (log(latency_s), log(per_second))))
    return samples


def _gavel(data: Path) -> list[FactorSample]:
    table = read_gavel(data)
    samples = []
    for (model, gpu_type), speed in sorted(table.alone.items()):
        batch = model.partition("size ")[2].rstrip(")") or "1"
        kinds = {"model": model, "family": family(model), "gpu type": gpu_type}
        samples.append(
            FactorSample(
                kinds, {"ln batch": log(int(batch)), "ln gpu type": float(TYPES.index(gpu_type))}, (log(speed),)
            )
        )
    return samples


def _ours(samples: Sequence[FactorSample]) -> Predict:
    return learn_factors(samples, PAIR).learner.predict


def _split(samples: Sequence[FactorSample], seed: int) -> tuple[list[FactorSample], list[FactorSample]]:
    """Leaves out a fifth of the pairs."""
    pairs = sorted({_pair(sample) for sample in samples})
    random.Random(seed).shuffle(pairs)  # noqa: S311 # a split, no secret
    out = set(pairs[: len(pairs) // 5])
    return [each for each in samples if _pair(each) not in out], [each for each in samples if _pair(each) in out]


def _pair(sample: FactorSample) -> tuple[str, ...]:
    return tuple(sample.categories[kind] for kind in PAIR)


def _left_out(
    samples: Sequence[FactorSample], seeds: int
) -> tuple[dict[str, float], dict[str, float], dict[str, float], int]:
    """Returns root mean squares, R2, microseconds a prediction by method, and how many predictions were judged."""
    errors: dict[str, list[Floats]] = {}
    truth: list[Floats] = []
    seconds: dict[str, float] = {}
    for seed in range(seeds):
        known, judged = _split(samples, seed)
        targets = np.array([each.targets for each in judged])
        truth.append(targets - targets.mean(0))
        for name, method in {OURS: _ours, **BASELINES}.items():
            predict = method(known)
            errors.setdefault(name, []).append(np.array([predict(each) for each in judged]) - targets)
            asked = [judged[at % len(judged)] for at in range(TIMED if seed == 0 and name != "forest" else 50)]
            start = time.perf_counter()
            for each in asked:
                predict(each)
            seconds.setdefault(name, (time.perf_counter() - start) / len(asked))
    spread = float((np.concatenate(truth) ** 2).mean())
    squares = {name: float((np.concatenate(each) ** 2).mean()) for name, each in errors.items()}
    return (
        {name: each**0.5 for name, each in squares.items()},
        {name: 1 - each / spread for name, each in squares.items()},
        {name: each * 1e6 for name, each in seconds.items()},
        sum(len(each) for each in truth),
    )


def _measure_errors(samples: Sequence[FactorSample]) -> dict[int, dict[str, float]]:
    """Returns root mean squares by how many samples were known."""
    found = {}
    for count in COUNTS:
        squares: dict[str, list[float]] = {}
        for seed in range(SEEDS):
            known, judged = _split(samples, seed)
            random.Random(seed).shuffle(known)  # noqa: S311
            targets = np.array([each.targets for each in judged])
            for name, method in {OURS: _ours, "nearest": BASELINES["nearest"]}.items():
                predict = method(known[:count])
                squares.setdefault(name, []).append(
                    float(((np.array([predict(each) for each in judged]) - targets) ** 2).mean())
                )
        found[count] = {name: float(np.mean(each)) ** 0.5 for name, each in squares.items()}
    return found


def _row(what: str, data: str, judged: int, found: dict[str, float], unit: str, note: str) -> AccuracyRow:
    return AccuracyRow(what, data, judged, found[OURS], {k: v for k, v in found.items() if k != OURS}, unit, note)
