"""Factorization machines on made-up latencies whose truth has products of a model and a GPU type."""

from __future__ import annotations

from itertools import product
from math import log

import numpy as np
import pytest

from solvers.factors.choice import learn_factors
from solvers.factors.machine import FactorLearner, FactorSample, LearningRates

COMPUTE = {f"m{at}": 0.1 + 0.15 * at for at in range(6)}  # share of its time that compute takes
SPEED = {"t4": (1.0, 1.0), "v100": (1.9, 2.8), "a100": (3.4, 5.0), "l4": (2.0, 0.95)}  # compute, bandwidth


def sample(model: str, gpu_type: str, batch: int) -> FactorSample:
    compute, bandwidth = SPEED[gpu_type]
    share = COMPUTE[model]
    time_ms = (2 + batch) * (share / compute + (1 - share) / bandwidth)
    kinds = {"model": model, "gpu type": gpu_type, "batch": str(batch)}
    return FactorSample(kinds, {"ln batch": log(batch)}, (log(time_ms), log(1000 * batch / time_ms)))


ALL = [sample(model, gpu_type, batch) for model, gpu_type, batch in product(COMPUTE, SPEED, (1, 2, 4, 8, 16))]
HIDDEN = {("m1", "a100"), ("m3", "l4"), ("m4", "v100"), ("m5", "t4")}
KNOWN = [each for each in ALL if (each.categories["model"], each.categories["gpu type"]) not in HIDDEN]
JUDGED = [each for each in ALL if each not in KNOWN]


def error(learner: FactorLearner) -> float:
    left = [np.subtract(learner.predict(each), each.targets) for each in JUDGED]
    return float(np.sqrt(np.mean(np.square(left))))


def test_pairs_never_measured_are_predicted_by_both_targets() -> None:
    found = learn_factors(KNOWN, ("model", "gpu type"))
    assert error(found.learner) < 0.15
    assert found.errors is not None
    assert max(found.errors) < 0.5  # learned from fewer pairs


def test_factors_say_more_than_the_sum_of_a_model_and_a_gpu_type() -> None:
    plain = FactorLearner(2, LearningRates(rank=0)).fit(KNOWN)
    assert error(FactorLearner(2).fit(KNOWN)) < 0.8 * error(plain)


def test_one_sample_is_enough_to_predict_and_a_new_model_is_no_fault() -> None:
    learner = FactorLearner(2).fit(KNOWN[:1])
    assert learner.predict(KNOWN[0]) == pytest.approx(KNOWN[0].targets, abs=0.05)
    assert all(np.isfinite(learner.predict(FactorSample({"model": "new"}))))


def test_the_same_samples_give_the_same_predictions() -> None:
    first, second = (FactorLearner(2).fit(KNOWN) for _ in range(2))
    assert [first.predict(each) for each in JUDGED] == [second.predict(each) for each in JUDGED]
