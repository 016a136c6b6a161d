"""Token times at concurrencies and of servers that were not measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lab.language.closed_loop import ClosedLoopModel, ClosedLoopRun, learned_levels


def run(model: str, degree: int, tokens: int, concurrency: int) -> ClosedLoopRun:
    return ClosedLoopRun(model, "h100", "vllm", "1.0 fp8", degree, tokens, 512, concurrency)


def tpot_ms(of: ClosedLoopRun) -> float:
    """Returns TPOT by an invented law: a model's size over its GPUs, and a share for each request."""
    size = {"small": 8.0, "large": 40.0}[of.model]
    shared = 0.1 * of.concurrency * (1 + of.input_tokens / 4000)
    return 2 + size / of.degree + shared / math.sqrt(of.degree)


RUNS = [
    run(model, degree, tokens, concurrency)
    for model in ("small", "large")
    for degree in (1, 2, 4)
    for tokens in (512, 2048)
    for concurrency in (4, 8, 16, 32, 64)
]
TIMES = [tpot_ms(each) for each in RUNS]


def test_a_concurrency_left_out_is_found_better_than_by_a_line() -> None:
    model = ClosedLoopModel(RUNS, TIMES)
    errors, lines = [], []
    for index, each in enumerate(RUNS):
        if each.concurrency in (4, 64):
            continue
        errors.append(abs(model.leave_out([index])[0] / TIMES[index] - 1))
        lines.append(abs(np.sqrt(TIMES[index - 1] * TIMES[index + 1]) / TIMES[index] - 1))
    assert np.mean(errors) < np.mean(lines)
    assert np.mean(errors) < 0.02


def test_a_sweep_that_was_never_run_is_found_from_its_relatives() -> None:
    out = [
        index for index, each in enumerate(RUNS) if (each.model, each.degree, each.input_tokens) == ("large", 2, 512)
    ]
    kept = [index for index in range(len(RUNS)) if index not in out]
    model = ClosedLoopModel([RUNS[index] for index in kept], [TIMES[index] for index in kept])
    told = model.predict([RUNS[index] for index in out])
    assert told == pytest.approx([TIMES[index] for index in out], rel=0.2)


def test_leaving_runs_out_in_one_step_equals_a_model_without_them() -> None:
    levels = learned_levels(RUNS, np.log(TIMES))
    whole = ClosedLoopModel(RUNS, TIMES, levels)
    rest = ClosedLoopModel(RUNS[5:], TIMES[5:], levels)
    shift = math.log(np.exp(np.mean(np.log(TIMES)))) - math.log(np.exp(np.mean(np.log(TIMES[5:]))))
    assert np.log(whole.leave_out(list(range(5)))) == pytest.approx(
        np.log(rest.predict(RUNS[:5])), abs=0.02 + abs(shift)
    )
