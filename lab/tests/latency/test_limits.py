"""The limits of the product against the exact chain: none is beyond it, and hardly any load is lost."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lab.latency import chain
from solvers.latency import kernels, limits
from tests.solvers.latency.drawn import USUAL, Question, questions
from tests.support.soak import scaled


@pytest.mark.slow
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
