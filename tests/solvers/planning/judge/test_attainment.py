"""The simulated batch server against queueing theory, and against itself in plain Python."""

from __future__ import annotations

import ast
import math
from pathlib import Path

import numpy as np
import pytest

from solvers.planning import judge as package
from solvers.planning.judge.attainment import find_attained
from solvers.planning.judge.busy import busy_fraction
from solvers.planning.judge.kernels import busy_at_timeout_0, count_served
from solvers.planning.judge.streams import BLOCKS, stream


def in_plain_python(
    units: list[float], batch: int, exec_s: float, timeout_s: float, rate: float, slo_s: float
) -> list[bool]:
    """Returns which requests are done within the SLO, following the contract sentence by sentence."""
    waiting: list[float] = []
    done: list[bool] = []
    arrivals = [unit / rate for unit in units]
    free, now = 0.0, 0.0
    while arrivals or waiting:
        if not waiting:
            now = max(now, arrivals[0])
        while arrivals and arrivals[0] <= now:
            waiting.append(arrivals.pop(0))
        starts_at = max(free, now)
        if len(waiting) < batch and starts_at < waiting[0] + timeout_s:
            later = min(waiting[0] + timeout_s, arrivals[0] if arrivals else math.inf)
            now = max(later, now)
            if arrivals and later == arrivals[0]:
                continue
            starts_at = max(free, now)
        now = starts_at
        while arrivals and arrivals[0] <= now:
            waiting.append(arrivals.pop(0))
        taken, waiting = waiting[:batch], waiting[batch:]
        done += [now - arrived <= (slo_s - exec_s) + 1e-9 * slo_s for arrived in taken]
        free = now = now + exec_s
    return done


@pytest.mark.parametrize("timeout_ms", [0.0, 4.0, 40.0])
@pytest.mark.parametrize(("batch", "rate"), [(1, 60.0), (4, 60.0), (4, 250.0), (8, 600.0), (16, 100.0)])
def test_the_compiled_server_does_what_the_contract_says(batch: int, rate: float, timeout_ms: float) -> None:
    units = stream(3_000, 7)
    slo_s = 0.025 + timeout_ms / 2000
    share, _, _ = count_served(units, batch, 0.012, timeout_ms / 1000, rate, slo_s, 0, BLOCKS)
    kept = in_plain_python(units.tolist(), batch, 0.012, timeout_ms / 1000, rate, slo_s)
    assert share == pytest.approx(sum(kept) / len(kept))


def test_a_server_of_batch_1_waits_as_erlang_says() -> None:
    # M/D/1: P(no wait) = 1 - load; P(wait <= t) for t < exec is (1 - load) exp(rate t).
    rate, exec_s, load = 60.0, 0.01, 0.6
    units = stream(1_000_000, 3)
    for wait in (0.0, 0.004, 0.009):
        share, error, busy = count_served(units, 1, exec_s, 0.0, rate, exec_s + wait, 10_000, BLOCKS)
        assert share == pytest.approx((1 - load) * math.exp(rate * wait), abs=6 * error)
        assert busy == pytest.approx(load, abs=0.003)


@pytest.mark.parametrize("batch", [1, 2, 8, 32])
@pytest.mark.parametrize("load", [0.02, 0.2, 0.5, 0.8, 0.95])
def test_the_busy_fraction_is_what_a_long_simulation_finds(batch: int, load: float) -> None:
    rate = load * batch / 0.01
    simulated = count_served(stream(200_000, 5), batch, 0.01, 0.0, rate, 1.0, 2_000, BLOCKS)[2]
    assert busy_at_timeout_0(batch, load * batch) == pytest.approx(simulated, rel=0.01)
    assert busy_fraction(batch, 10.0, rate, 0.0) == pytest.approx(busy_at_timeout_0(batch, load * batch), rel=2e-3)


def test_a_timeout_fills_batches_and_leaves_the_server_idle_longer() -> None:
    assert busy_fraction(8, 10.0, 100.0, 60.0) < 0.7 * busy_fraction(8, 10.0, 100.0, 0.0)
    assert busy_fraction(8, 10.0, 0.0, 0.0) == 0
    assert busy_fraction(8, 10.0, 900.0, 0.0) == 1


def test_an_empty_server_keeps_an_slo_of_exactly_its_execution() -> None:
    # At 0.001 a second nobody waits.
    share, _, kept = find_attained(1, 50.0, 0.0, 0.001, 50.0, 99.9, 0)
    assert share > 0.9999
    assert kept


def test_what_is_short_by_chance_is_looked_at_again_and_what_is_short_is_not_kept() -> None:
    rate, exec_ms = 60.0, 10.0
    within = (1 - 0.6) * math.exp(0.06 * 4)  # of the wait of 4 ms, by Erlang
    for seed in range(6):
        assert find_attained(1, exec_ms, 0.0, rate, 14.0, 100 * (within - 0.0005), seed)[2]
        assert not find_attained(1, exec_ms, 0.0, rate, 14.0, 100 * (within + 0.02), seed)[2]


def test_streams_are_poisson_and_differ_by_seed() -> None:
    gaps = np.diff(stream(60_000, 1))
    assert gaps.mean() == pytest.approx(1, abs=0.02)
    assert gaps.std() == pytest.approx(1, abs=0.03)
    assert not np.array_equal(stream(60_000, 1), stream(60_000, 2))


def test_the_judge_shares_nothing_with_those_it_judges() -> None:
    for file in Path(str(package.__file__)).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                data = ["solvers.compiled", "solvers.planning.problem", "solvers.planning.plan"]
                data += ["solvers.planning.language", "solvers.llm.iteration", "solvers.llm.judged"]  # its own queue
                data += ["solvers.planning.runtimes"]  # names alone
                ours = name.startswith("solvers") and not name.startswith("solvers.planning.judge")
                assert not ours or name in data, f"{file.name} imports {name}"
