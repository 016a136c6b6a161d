"""TTFT and TPOT of servers at concurrencies that were not measured, from runs of the same and of similar servers.

A Gaussian process on logarithms. Its covariance is a sum of levels: what all servers share, what servers of a model
share, of a model and a framework, of one configuration, and what one sweep over concurrencies has alone. So a left-out
concurrency is found from its neighbours, and a sweep that was never run from its relatives, with one rule for both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NUMBERS = 4  # of concurrency, input, output and parallel degree, in this order: logarithms
JITTER = 1e-8
MOST_LEARNED_RUNS = 400  # that the levels' sizes are learned from: more of them add little


@dataclass(frozen=True, slots=True)
class ClosedLoopRun:
    """A server under a constant number of requests: what it is, and what they look like."""

    model: str
    gpu_type: str
    framework: str
    configuration: str  # version, precisions and how experts are spread
    degree: int
    input_tokens: int
    output_tokens: int
    concurrency: int

    @property
    def numbers(self) -> tuple[float, ...]:
        return tuple(log(n) for n in (self.concurrency, self.input_tokens, self.output_tokens, self.degree))

    @property
    def levels(self) -> tuple[str, ...]:
        """Returns what the run must have in common with another at each level, from all runs to one sweep."""
        model = f"{self.model} {self.gpu_type}"
        framework = f"{model} {self.framework}"
        configuration = f"{framework} {self.configuration}"
        degree = f"{configuration} {self.degree}"
        return "", model, framework, configuration, degree, f"{degree} {self.input_tokens} {self.output_tokens}"


START_DEVIATION = (1.0, 0.5, 0.3, 0.2, 0.1, 0.1)  # of each level, in logarithms
START_LENGTH = (3.0, 3.0, 2.0, 2.0, 2.0, 2.0)  # over which each level stays alike, in logarithms
START_NOISE = 0.03  # deviation, in logarithms


class _Runs:
    """Pairs of runs as the covariance needs them: squared differences of numbers, and the levels that they share."""

    def __init__(self, rows: Sequence[ClosedLoopRun], columns: Sequence[ClosedLoopRun]) -> None:
        left, right = (np.array([run.numbers for run in runs]).reshape(-1, NUMBERS) for runs in (rows, columns))
        self.squares = [(left[:, None, i] - right[None, :, i]) ** 2 for i in range(NUMBERS)]
        self.linear = 1.0 + sum(np.outer(left[:, i], right[:, i]) for i in range(NUMBERS))
        levels = (zip(*(run.levels for run in runs), strict=True) for runs in (rows, columns))
        self.shared = [np.equal.outer(np.array(a), np.array(b)) for a, b in zip(*levels, strict=True)]


def _parts(theta: Floats, runs: _Runs) -> list[Floats]:
    """Returns each level's covariance. `theta`: logarithms of each level's deviation and lengths, and of the noise."""
    found = []
    for level, shared in enumerate(runs.shared):
        size, *lengths = theta[level * (1 + NUMBERS) : (level + 1) * (1 + NUMBERS)]
        away = sum(square * np.exp(-2 * length) for square, length in zip(runs.squares, lengths, strict=True))
        found.append(np.exp(2 * size) * shared * np.exp(-0.5 * away))
    return found


def _likelihood(theta: Floats, runs: _Runs, values: Floats, start: Floats) -> tuple[float, Floats]:
    """Returns the negative logarithm of the likelihood and its slope, with a mild pull to the start."""
    parts = _parts(theta, runs)
    noise = np.exp(2 * theta[-1])
    covariance = sum(parts) + runs.linear + (noise + JITTER) * np.eye(len(values))
    factor = np.linalg.cholesky(covariance)
    inverse = np.linalg.inv(covariance)
    weights = inverse @ values
    cost = 0.5 * values @ weights + np.log(np.diag(factor)).sum() + 0.5 * len(values) * log(2 * pi)
    outer = inverse - np.outer(weights, weights)
    slope = np.empty_like(theta)
    for level, part in enumerate(parts):
        at = level * (1 + NUMBERS)
        scaled = outer * part
        slope[at] = scaled.sum()
        for number, square in enumerate(runs.squares):
            slope[at + 1 + number] = 0.5 * (scaled * square).sum() * np.exp(-2 * theta[at + 1 + number])
    slope[-1] = noise * np.trace(outer)
    pull = theta - start
    return float(cost + 0.5 * (pull**2).sum() / 4), slope + pull / 4


def learned_levels(runs: Sequence[ClosedLoopRun], logs: Floats, seed: int = 0) -> Floats:
    """Returns how much each level counts, and over which distances, from whole sweeps drawn among the runs."""
    from scipy.optimize import minimize

    sweeps = sorted({run.levels[-1] for run in runs})
    order = np.random.default_rng(seed).permutation(len(sweeps))
    chosen: list[int] = []
    by_sweep: dict[str, list[int]] = {}
    for index, run in enumerate(runs):
        by_sweep.setdefault(run.levels[-1], []).append(index)
    for place in order:
        if len(chosen) < MOST_LEARNED_RUNS:
            chosen += by_sweep[sweeps[place]]
    start = declared_levels()
    known = _Runs([runs[i] for i in chosen], [runs[i] for i in chosen])
    values = logs[chosen] - logs[chosen].mean()
    found = minimize(
        _likelihood, start, args=(known, values, start), jac=True, method="L-BFGS-B", options={"maxiter": 60},
        bounds=[(s - 5, s + 4) for s in start],
    )  # fmt: skip
    theta: Floats = found.x
    return theta


def declared_levels() -> Floats:
    """Returns the sizes of levels before anything is learned: orders of magnitude."""
    levels = zip(START_DEVIATION, START_LENGTH, strict=True)
    sizes = (size for deviation, length in levels for size in (deviation, *[length] * NUMBERS))
    result: Floats = np.log([*sizes, START_NOISE])
    return result


class ClosedLoopModel:
    """Predicts a positive quantity (TTFT or TPOT in ms) of runs, from measured ones."""

    def __init__(
        self, runs: Sequence[ClosedLoopRun], values: Sequence[float] | Floats, theta: Floats | None = None
    ) -> None:
        self.runs = list(runs)
        logs = np.log(np.array(values, float))
        self.theta = learned_levels(self.runs, logs) if theta is None else theta
        self.mean = float(logs.mean())
        self.centred = logs - self.mean
        known = _Runs(self.runs, self.runs)
        covariance = sum(_parts(self.theta, known)) + known.linear
        self.inverse = np.linalg.inv(covariance + (np.exp(2 * self.theta[-1]) + JITTER) * np.eye(len(logs)))
        self.weights = self.inverse @ self.centred

    def predict(self, runs: Sequence[ClosedLoopRun]) -> Floats:
        """Returns the medians of runs that were not measured."""
        between = _Runs(runs, self.runs)
        covariance = sum(_parts(self.theta, between)) + between.linear
        result: Floats = np.exp(self.mean + covariance @ self.weights)
        return result

    def leave_out(self, left_out: Sequence[int]) -> Floats:
        """Returns what the model would predict for some of its own runs if these had not been measured."""
        part = np.ix_(left_out, left_out)
        missing = np.linalg.solve(self.inverse[part], self.weights[left_out])
        result: Floats = np.exp(self.mean + self.centred[left_out] - missing)
        return result


class ConcurrencyOpinions:
    """Predicts a run between two others of its sweep: the median of three opinions.

    They are the process with learned levels, the one with declared levels, which no odd run has bent, and the line of
    logarithms between the two.
    """

    def __init__(self, learned: ClosedLoopModel, values: Sequence[float] | Floats) -> None:
        self.learned = learned
        self.declared = ClosedLoopModel(learned.runs, values, declared_levels())
        self.logs = np.log(np.array(values, float))

    def leave_out(self, index: int, before: int, after: int) -> float:
        """Returns what a run would be if it had not been measured, and these two of its sweep had."""
        low, at, high = (log(self.learned.runs[place].concurrency) for place in (before, index, after))
        share = (at - low) / (high - low)
        line = float(np.exp((1 - share) * self.logs[before] + share * self.logs[after]))
        processes = (float(model.leave_out([index])[0]) for model in (self.learned, self.declared))
        return float(np.median([line, *processes]))
