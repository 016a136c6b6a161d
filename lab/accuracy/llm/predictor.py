"""A quantile of TTFT and TPOT from the server's state, learned online: predict, then learn, in the file's order."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lab.accuracy.accuracy_row import AccuracyRow
from lab.data.missing_data import DataMissing
from lab.language.online import ReportedState, followed

Floats = NDArray[np.float64]

FOLDER = Path("latency-predictor")
QUANTILE = 0.9
WARMUP = 50  # samples before any method is judged
REFIT_SAMPLES = 100  # between two fits of gradient boosting
BOOSTING, RUNNING = "gradient boosting, refitted", "quantile so far"


@dataclass(frozen=True)
class StateSeries:
    """The requests of a file for which one quantity was measured, in order."""

    name: str
    states: list[ReportedState]
    measured_ms: list[float]


def rows(data: Path) -> list[AccuracyRow]:
    """Returns the pinball loss and the coverage over all series."""
    losses: dict[str, list[float]] = {}
    covered: list[float] = []
    words, total = [], 0
    for series in read_series(data):
        truth = np.array(series.measured_ms)
        found = {"ours": np.array(followed(QUANTILE, series.states, series.measured_ms)), **_baselines(series)}
        for name, quantiles in found.items():
            losses.setdefault(name, []).append(100 * _pinball(truth, quantiles)[WARMUP:].mean() / truth[WARMUP:].mean())
        below = (truth <= found["ours"])[WARMUP:]
        covered += below.tolist()
        total += len(below)
        words.append(
            f"{series.name}: pinball {losses['ours'][-1]:.2f} against {losses[BOOSTING][-1]:.2f} %, "
            f"coverage {100 * below.mean():.1f} against {100 * (truth <= found[BOOSTING])[WARMUP:].mean():.1f} %"
        )
    means = {name: float(np.mean(each)) for name, each in losses.items()}
    return [
        AccuracyRow(
            "predictor.pinball", str(FOLDER), total, means.pop("ours"), means, "% of the mean",
            f"quantile {QUANTILE}, mean over series; {'; '.join(words)}",
        ),
        AccuracyRow(
            "predictor.coverage", str(FOLDER), total, 100 * float(np.mean(covered)), {"wanted": 100 * QUANTILE},
            note="share of measurements at or below the quantile, of all series",
        ),
    ]  # fmt: skip


def read_series(data: Path) -> list[StateSeries]:
    """Returns TTFT and TPOT of every file."""
    files = sorted((data / FOLDER).glob("*.jsonl"))
    if not files:
        raise DataMissing(f"{data / FOLDER} has no *.jsonl")
    found = []
    for file in files:
        entries = [json.loads(line) for line in file.read_text().splitlines()]
        for quantity in ("ttft", "tpot"):
            measured = [entry for entry in entries if entry[f"actual_{quantity}_ms"] > 0]
            found.append(
                StateSeries(
                    f"{file.stem} {quantity}",
                    [_state(entry) for entry in measured],
                    [float(entry[f"actual_{quantity}_ms"]) for entry in measured],
                )
            )
    return found


def _state(entry: dict[str, float]) -> ReportedState:
    return ReportedState(
        entry["kv_cache_percentage"],
        int(entry["num_request_waiting"]),
        int(entry["num_request_running"]),
        entry["prefill_tokens_in_flight"],
        int(entry["input_token_length"]),
        entry["prefix_cache_score"],
    )


def _baselines(series: StateSeries) -> dict[str, Floats]:
    from sklearn.ensemble import GradientBoostingRegressor

    states = np.array([state.features for state in series.states])
    truth = np.array(series.measured_ms)
    boosted, running = np.empty(len(truth)), np.empty(len(truth))
    for at in range(len(truth)):
        running[at] = np.quantile(truth[:at], QUANTILE) if at else truth[0]
    boosted[:WARMUP] = running[:WARMUP]
    for at in range(WARMUP, len(truth), REFIT_SAMPLES):
        regressor = GradientBoostingRegressor(loss="quantile", alpha=QUANTILE, min_samples_leaf=5, random_state=0)
        regressor.fit(states[:at], truth[:at])
        boosted[at : at + REFIT_SAMPLES] = regressor.predict(states[at : at + REFIT_SAMPLES])
    return {BOOSTING: boosted, RUNNING: running}


def _pinball(truth: Floats, quantiles: Floats) -> Floats:
    over = truth - quantiles
    result: Floats = np.maximum(QUANTILE * over, (QUANTILE - 1) * over)
    return result
