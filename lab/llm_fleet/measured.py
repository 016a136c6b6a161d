"""Fits the time of an iteration to splitwise's measurements, for each model, GPU type and parallel degree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from lab.data.csv_rows import read_rows
from solvers.llm.iteration import IterationCost

Floats: TypeAlias = NDArray[np.float64]
ServerKind: TypeAlias = tuple[str, str, int]  # model, GPU type, parallel degree

FILE = Path("splitwise") / "perf_model.csv"
COLUMNS = ("model", "hardware", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time",
           "tensor_parallel")  # fmt: skip
MOST_PROMPT_TOKENS = 2048  # of an iteration: engines compute longer prompts in parts
FAILED_SHARE = 0.5  # of a smaller prompt's time: a run that is faster did not compute its whole batch


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A batch of equal requests: the median times of its prompts together, and of one token of each."""

    prompt_tokens: int  # of each request
    batch: int
    output_tokens: int
    prompt_ms: float
    token_ms: float


@dataclass(frozen=True, slots=True)
class MeasuredIteration:
    """The time of one iteration, and what it computes."""

    batch: int
    prompt_tokens: int
    sequences: int
    kv_tokens: float
    ms: float


@dataclass(frozen=True, slots=True)
class FittedIteration:
    """The coefficients of an iteration's time, and their mean errors as shares of the measured times."""

    cost: IterationCost
    prompt_error: float
    token_error: float
    left_out_prompt_error: float  # of the runs of a batch size, by a fit to all others
    left_out_token_error: float
    runs: int
    failed_runs: int  # left out: they did not compute their whole batch


def read_runs(data: Path) -> dict[ServerKind, list[MeasuredRun]]:
    """Returns the runs of each kind of server; repeats are one run."""
    repeats: dict[tuple[ServerKind, tuple[int, int, int]], list[tuple[float, float]]] = defaultdict(list)
    for entry in read_rows(data / FILE, COLUMNS):
        kind = entry["model"], entry["hardware"], int(entry["tensor_parallel"])
        sizes = int(entry["prompt_size"]), int(entry["batch_size"]), int(entry["token_size"])
        repeats[kind, sizes].append((float(entry["prompt_time"]), float(entry["token_time"])))
    found: dict[ServerKind, list[MeasuredRun]] = defaultdict(list)
    for (kind, sizes), times in repeats.items():
        found[kind].append(MeasuredRun(*sizes, median(each[0] for each in times), median(each[1] for each in times)))
    return dict(found)


def fit_all(data: Path) -> dict[ServerKind, FittedIteration]:
    """Returns the fitted time of an iteration for every kind of server that was measured."""
    return {kind: fitted(runs) for kind, runs in read_runs(data).items()}


def fitted(runs: Sequence[MeasuredRun]) -> FittedIteration:
    """Returns the fit to all runs, and how far fits to all but one batch size are from that size."""
    counted = [run for run in runs if not _failed(run, runs)]
    rows = _iterations(counted)
    cost = fit_iterations(rows)
    left_out: dict[bool, list[float]] = {True: [], False: []}
    for batch in sorted({row.batch for row in rows}):
        others = [row for row in rows if row.batch != batch]
        without = fit_iterations(others) if others else cost
        for row in rows:
            if row.batch == batch:
                left_out[row.prompt_tokens > 0].append(_error(without, row))
    inside = {of: [_error(cost, row) for row in rows if (row.prompt_tokens > 0) is of] for of in (True, False)}
    return FittedIteration(
        cost, _mean(inside[True]), _mean(inside[False]), _mean(left_out[True]), _mean(left_out[False]),
        len(counted), len(runs) - len(counted),
    )  # fmt: skip


def _failed(run: MeasuredRun, runs: Sequence[MeasuredRun]) -> bool:
    """Returns whether another run computed fewer prompt tokens in more than twice the time."""
    size = run.prompt_tokens * run.batch
    return any(
        other.prompt_tokens * other.batch < size and run.prompt_ms < FAILED_SHARE * other.prompt_ms for other in runs
    )


def _iterations(runs: Sequence[MeasuredRun]) -> list[MeasuredIteration]:
    """Returns two iterations of each run: all prompts at once, unless that is too many tokens, and a mean one after."""
    found = []
    for run in runs:
        tokens, held = run.prompt_tokens * run.batch, run.batch * (run.prompt_tokens + run.output_tokens / 2)
        if tokens <= MOST_PROMPT_TOKENS:
            found.append(MeasuredIteration(run.batch, tokens, 0, 0.0, run.prompt_ms))
        found.append(MeasuredIteration(run.batch, 0, run.batch, held, run.token_ms))
    return found


def fit_iterations(rows: Sequence[MeasuredIteration]) -> IterationCost:
    """Returns the coefficients of least squared relative error, none of them negative.

    An iteration either waits for its weights or for its arithmetic. Each number of tokens is tried as the one from
    which on it is arithmetic; given that, the problem is linear.
    """
    tokens = np.array([row.prompt_tokens + row.sequences for row in rows], dtype=float)
    sequences = np.array([row.sequences for row in rows], dtype=float)
    held = np.array([row.kv_tokens for row in rows])
    ms = np.array([row.ms for row in rows])
    best: tuple[float, IterationCost] | None = None
    for least in (*np.unique(tokens), np.inf):
        computes = tokens >= least
        columns = (
            np.ones(len(rows)), np.where(computes, tokens, 0.0), np.where(computes, 0.0, 1.0), sequences, held,
        )  # fmt: skip
        matrix: Floats = np.stack(columns, axis=1) / ms[:, None]
        cost = IterationCost(*(float(value) for value in nnls(matrix, np.ones(len(rows)))[0]))
        loss = sum(_error(cost, row) ** 2 for row in rows)
        if best is None or loss < best[0]:
            best = loss, cost
    assert best
    return best[1]


def _error(cost: IterationCost, row: MeasuredIteration) -> float:
    return abs(cost.milliseconds(row.prompt_tokens, 0.0, row.sequences, row.kv_tokens) / row.ms - 1)


def _mean(errors: Sequence[float]) -> float:
    return sum(errors) / len(errors) if errors else 0.0


def fit_row(kind: ServerKind, fit: FittedIteration) -> Mapping[str, object]:
    """Returns a fit as JSON: coefficients in ms, errors in percent."""
    model, gpu_type, degree = kind
    return {
        "model": model, "gpuType": gpu_type, "parallel": degree, "baseMs": fit.cost.base_ms,
        "tokenMs": fit.cost.token_ms, "weightsMs": fit.cost.weights_ms, "sequenceMs": fit.cost.sequence_ms,
        "kvTokenMs": fit.cost.kv_token_ms, "promptErrorPercent": round(100 * fit.prompt_error, 2),
        "tokenErrorPercent": round(100 * fit.token_error, 2),
        "leftOutPromptErrorPercent": round(100 * fit.left_out_prompt_error, 2),
        "leftOutTokenErrorPercent": round(100 * fit.left_out_token_error, 2),
        "runs": fit.runs, "failedRuns": fit.failed_runs,
    }  # fmt: skip
