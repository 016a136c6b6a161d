"""Predictions from the testbed's profiles: what is drawn, and how the learners compare."""

from __future__ import annotations

import numpy as np
import pytest

from app.control.formulate.problem import build_problem
from app.manifests.uncertain import MEAN_QUANTILE
from lab.baselines.predictors import matrix
from lab.evaluate import testbeds
from lab.evaluate.oltunes.learning import LEARNERS, MATRIX, samples_of, scores
from solvers.planners.names import OLTUNES


def test_samples_have_the_features_of_table_3_and_repeat_themselves() -> None:
    problem = build_problem(testbeds.testbed("oltunes", {"serving/answer": 1.0}), MEAN_QUANTILE)
    samples = samples_of(problem, 0)
    assert samples == samples_of(problem, 0) != samples_of(problem, 1)
    assert len(samples) == 1400
    assert set(samples[0].categories) == {"model", "batch", "memory used", "memory total", "gpu type", "sm"}
    assert {sample.categories["gpu type"] for sample in samples} == set(problem.gpu_types)
    assert np.isfinite([sample.targets for sample in samples]).all()


@pytest.mark.slow
def test_the_factorization_machine_needs_few_samples_and_beats_matrix_factorization() -> None:
    problem = build_problem(testbeds.testbed("oltunes", {"serving/answer": 1.0}), MEAN_QUANTILE)
    samples = samples_of(problem, 0)
    machine, factors = (scores(train, samples, counts=(100,)) for train in (LEARNERS[OLTUNES], matrix))
    assert machine.rmse < factors.rmse
    assert machine.r2 > 0.9
    assert machine.samples == 100
    assert LEARNERS[MATRIX] is matrix
