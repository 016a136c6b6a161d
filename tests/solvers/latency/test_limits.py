"""Limits against the referee's simulation, against the exact chain, and against themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from solvers.latency import OutsideTheTable, chain, kernels, limits, max_rate
from tests.solvers.latency.drawn import USUAL, Question, questions
from tests.solvers.latency.referee import refuses
from tests.support.soak import scaled


@pytest.mark.slow
@pytest.mark.long
def test_no_accepted_load_is_refused_by_the_referee() -> None:
    random = np.random.default_rng(11)
    found = []
    for index, (batch, percentile, ratio) in enumerate(questions(scaled(10_000, 50), seed=11)):
        exec_ms = float(np.exp(random.uniform(np.log(0.5), np.log(500.0))))
        rate_per_second, timeout_ms = max_rate(batch, exec_ms, ratio * exec_ms, percentile)
        if rate_per_second > 0.0:
            found.append(refuses(batch, exec_ms, rate_per_second, timeout_ms, ratio * exec_ms, percentile, 2 * index))
    assert [fault for fault in found if fault] == []
    assert len(found) > 0.9 * scaled(10_000, 50)


@pytest.mark.slow
@pytest.mark.long
def test_no_accepted_load_is_beyond_the_exact_chain() -> None:
    for batch, percentile, ratio in questions(scaled(50_000, 100), seed=12):
        allowed = (1.0 - percentile / 100.0) * (1.0 + 1e-6)
        of = limits(percentile)
        prompt = kernels.accepted_load(of.prompt[batch], ratio)
        patient = kernels.accepted_load(of.loads[batch], ratio)
        assert patient >= prompt
        for load, timeout in ((prompt, 0.0), (patient, min(1.0, ratio - 1.0) if patient > prompt else 0.0)):
            if load > 0.0:
                late = 1.0 - chain.attainment(chain.solve(batch, load), np.array([ratio]), timeout)[0]
                assert late <= allowed, (batch, percentile, ratio, load, timeout)


@pytest.mark.slow
@pytest.mark.long
def test_hardly_any_load_is_lost() -> None:
    """Of the largest load, with and without a timeout, at most 3 %: so much the claim of a bound allows for."""
    kept, with_timeout = [], 0
    for question in questions(scaled(10_000, 25), seed=13):
        of = limits(question.percentile)
        ours = kernels.accepted_load(of.loads[question.batch], question.ratio)
        prompt = kernels.accepted_load(of.prompt[question.batch], question.ratio)
        true = largest_load(question, prompt, is_patient=False)
        if true < 0.05:
            continue
        kept.append(prompt / true)
        patient = largest_load(question, ours, is_patient=True)
        if patient >= 1.025 * true:  # from 2 % on it must be used
            kept.append(ours / patient)
            with_timeout += 1
    assert min(kept) >= 0.97
    assert with_timeout > 0


@pytest.mark.slow
@pytest.mark.long
def test_hardly_any_low_load_is_lost() -> None:
    """Of loads of 0.0001..0.05, with and without a timeout, at most 3 %: SLOs a hair below two execs are left out."""
    kept = []
    for (batch, percentile, ratio), load in low_questions(scaled(3000, 60), seed=15):
        of = limits(percentile)
        prompt, ours = kernels.accepted_load(of.prompt[batch], ratio), kernels.accepted_load(of.loads[batch], ratio)
        kept.append(prompt / load)
        patient = largest_load(Question(batch, percentile, ratio), ours, is_patient=True)
        kept.append(ours / (patient if patient >= 1.025 * load else load))
        for accepted, timeout in ((prompt, 0.0), (ours, min(1.0, ratio - 1.0) if ours > prompt else 0.0)):
            late = 1.0 - chain.attainment(chain.solve(batch, accepted), np.array([ratio]), timeout)[0]
            assert late <= (1.0 - percentile / 100.0) * (1.0 + 1e-6)
    assert min(kept) >= 0.97


def low_questions(count: int, seed: int) -> Iterator[tuple[Question, float]]:
    """Random batches, percentiles and low loads, with the least SLO / exec at which the load is accepted."""
    random = np.random.default_rng(seed)
    while count:
        batch = int(2 ** random.uniform(0.0, 8.0))
        percentile = float(random.uniform(50.0, 99.9) if random.random() < 0.5 else random.choice(USUAL))
        load = float(np.exp(random.uniform(np.log(1e-4), np.log(0.05))))
        solved = chain.solve(batch, load)
        low, high = 1.0, 3.0
        for _ in range(40):
            middle = (low + high) / 2
            is_met = chain.attainment(solved, np.array([middle]))[0] >= percentile / 100.0
            low, high = (low, middle) if is_met else (middle, high)
        missing = 1.0 - percentile / 100.0
        if high > 1.0 + 1e-5 and not 2.0 - 1.001 * missing < high < 2.0:
            yield Question(batch, percentile, high), load
            count -= 1


def largest_load(question: Question, guess: float, is_patient: bool) -> float:
    """By halving on the exact chain, to 0.05 %, from a guess that is seldom far off."""
    timeout = min(1.0, question.ratio - 1.0) if is_patient else 0.0

    def is_met(load: float) -> bool:
        met = chain.attainment(chain.solve(question.batch, load), np.array([question.ratio]), timeout)[0]
        return bool(met >= question.percentile / 100.0)

    low, factor = max(guess, 1e-5), 1.01
    if not is_met(low):
        low, high = 0.0, low
    else:
        while True:
            high = min(low * factor, 0.997)
            if not is_met(high):
                break
            if high == 0.997:
                return high
            low, factor = high, min(factor**2, 2.0)
    while high - low > 5e-4 * high and high > 2e-5:
        middle = (low + high) / 2
        low, high = (middle, high) if is_met(middle) else (low, middle)
    return low


@pytest.mark.parametrize("percentile", [50.0, 73.123456, 98.0, 99.9])
@pytest.mark.parametrize("batch", [1, 2, 3, 8, 100, 256])
def test_a_looser_slo_never_accepts_less_load(percentile: float, batch: int) -> None:
    ratios = np.concatenate([np.linspace(0.5, 4.0, 3501), np.geomspace(4.0, 1e6, 500)])
    for rows in (limits(percentile).prompt, limits(percentile).loads):
        loads = np.array([kernels.accepted_load(rows[batch], ratio) for ratio in ratios])
        assert np.all(np.diff(loads) >= 0.0)
        assert np.all(loads[ratios <= 1.0] == 0.0)
        assert loads[-1] < 1.0


def test_a_higher_percentile_never_accepts_more_load() -> None:
    ratios = (1.5, 1.9, 1.99, 2.0, 2.3, 5.0, 40.0)
    for batch in (1, 4, 31, 256):
        loads = [
            [kernels.accepted_load(limits(percentile).prompt[batch], ratio) for ratio in ratios]
            for percentile in (50.0, 90.0, 90.01, 95.0, 99.0, 99.89, 99.9)
        ]
        assert np.all(np.diff(loads, axis=0) <= 0.0)
        assert loads[1][1] > loads[2][1] > 0.0  # a hundredth of a percent counts


@pytest.mark.slow
def test_the_needed_ratio_is_the_inverse_of_the_accepted_load() -> None:
    for batch, percentile, ratio in questions(2000, seed=14):
        row = limits(percentile).loads[batch]
        load = kernels.accepted_load(row, ratio)
        if load > 0.0:
            needed = kernels.needed_ratio(row, load)
            assert needed <= ratio * (1 + 1e-12)
            assert kernels.accepted_load(row, needed * (1 + 1e-12)) >= load * (1 - 1e-9)


def test_the_cliff_is_where_two_execs_fit() -> None:
    row = limits(98.0).loads[32]
    assert kernels.accepted_load(row, 1.95) == pytest.approx(0.0204, abs=0.0005)
    assert kernels.accepted_load(row, 2.0) == pytest.approx(0.815, abs=0.005)
    assert kernels.accepted_load(row, 2.25) == pytest.approx(0.907, abs=0.005)


def test_batch_0_accepts_nothing_and_values_outside_the_table_are_refused() -> None:
    assert kernels.accepted_load(limits(98.0).loads[0], 10.0) == 0.0
    for ratio in (float("nan"), -1.0, 0.0, 1.0):
        assert kernels.accepted_load(limits(98.0).loads[8], ratio) == 0.0
    assert kernels.accepted_load(limits(98.0).loads[8], math.inf) == kernels.accepted_load(limits(98.0).loads[8], 1e6)
    for percentile in (49.9, 99.91, float("nan")):
        with pytest.raises(OutsideTheTable, match=r"is outside 50\.\.99\.9"):
            limits(percentile)
