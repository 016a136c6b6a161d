"""Claim O1: predictions of latency and throughput from Table 3's features, by four learners on the same samples.

The samples are configurations of the testbed's profiles with a measuring error. The paper's learner takes batch and SM%
as categories; ours takes them as numbers, too, and chooses its learning rates by what is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, log
from random import Random
from typing import TypeAlias

import numpy as np

from app.control.formulate.problem import build_problem
from app.manifests.uncertain import MEAN_QUANTILE
from lab.baselines.predictors import Predict, forest, matrix
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from simulation.fleet_truth import interpolate
from solvers.factors.choice import learn_factors
from solvers.factors.machine import FactorLearner, FactorSample
from solvers.planners.names import JOINT, OLTUNES
from solvers.planning.problem import Problem, Profile

SAMPLES, JUDGED_SHARE = 1_400, 0.1
NOISE_SHARE = 0.03  # of a measured time
COUNTS = (25, 50, 100, 200, 500, 1_000)
ENOUGH_RMSE, ENOUGH_R2 = 1.3, 0.5  # what the paper calls the optimal accuracy
SM_STEP_PERCENT = 5
MATRIX, FOREST = "matrix factorization", "random forest"
Train: TypeAlias = Callable[[Sequence[FactorSample]], Predict]


@dataclass(frozen=True, slots=True)
class LearningScores:
    """The errors of a learner, and the samples that it needs."""

    rmse: float
    r2: float
    samples: float


def learning_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns the figures of claim O1."""
    problem = build_problem(testbed("oltunes", {"serving/answer": 1.0}), MEAN_QUANTILE)
    drawn = [samples_of(problem, seed) for seed in seeds]
    found = [{name: scores(train, samples, COUNTS) for name, train in LEARNERS.items()} for samples in drawn]
    return {
        "rmse": measured_alike([{name: score.rmse for name, score in own.items()} for own in found]),
        "r2": measured_alike([{name: score.r2 for name, score in own.items()} for own in found], 1.0),
        "samples": measured_alike([{name: score.samples for name, score in own.items()} for own in found]),
    }


def samples_of(problem: Problem, seed: int) -> list[FactorSample]:
    """Returns configurations drawn from all profiles, each measured once."""
    rng = Random(f"samples {seed}")  # noqa: S311
    every = [
        (profile, batch, sm)
        for _, profile in sorted(problem.profiles.items())
        for batch in sorted(profile.latency_ms)
        for sm in range(2 * SM_STEP_PERCENT, 101, SM_STEP_PERCENT)
    ]
    return [
        _sample(problem, *place, exp(rng.gauss(0.0, NOISE_SHARE)))
        for place in rng.sample(every, min(SAMPLES, len(every)))
    ]


def _sample(problem: Problem, profile: Profile, batch: int, sm_percent: int, error: float) -> FactorSample:
    """Returns Table 3's features; input sizes are those of the model, and say nothing besides it here."""
    gpu = problem.gpu_types[profile.gpu_type]
    latency_ms = interpolate(profile.latency_ms[batch], sm_percent) * error
    kinds = {
        "model": f"{profile.model}/{profile.variant}",
        "batch": str(batch),
        "memory used": str(2 * round(profile.memory_gib[batch] / 2)),
        "memory total": str(gpu.memory_gib),
        "gpu type": profile.gpu_type,
        "sm": str(sm_percent),
    }
    numbers = {"ln batch": log(batch), "ln sm": log(sm_percent), "ln memory": log(profile.memory_gib[batch])}
    return FactorSample(kinds, numbers, (log(latency_ms), log(1000 * batch / latency_ms)))


def _papers(samples: Sequence[FactorSample]) -> Predict:
    known = [FactorSample(sample.categories, {}, sample.targets) for sample in samples]
    learner = FactorLearner(2).fit(known)
    return lambda sample: learner.predict(FactorSample(sample.categories))


def _ours(samples: Sequence[FactorSample]) -> Predict:
    return learn_factors(samples, ("model", "gpu type")).learner.predict


LEARNERS: Mapping[str, Train] = {MATRIX: matrix, FOREST: forest, OLTUNES: _papers, JOINT: _ours}


def scores(train: Train, samples: Sequence[FactorSample], counts: Sequence[int]) -> LearningScores:
    """Returns the errors on a tenth of the samples, and the first of `counts` of the others that is enough."""
    judged = int(JUDGED_SHARE * len(samples))
    tested, known = samples[:judged], samples[judged:]
    rmse, r2 = _errors(train(known), tested)
    enough = float(len(samples))
    for count in (count for count in counts if count <= len(known)):
        if _is_enough(*_errors(train(known[:count]), tested)):
            enough = float(count)
            break
    return LearningScores(rmse, r2, enough)


def _is_enough(rmse: float, r2: float) -> bool:
    return rmse <= ENOUGH_RMSE and r2 >= ENOUGH_R2


def _errors(predict: Predict, tested: Sequence[FactorSample]) -> tuple[float, float]:
    """Returns the root mean square error and R2 of both targets together."""
    truth = np.array([sample.targets for sample in tested])
    off = np.array([predict(sample) for sample in tested]) - truth
    return float(np.sqrt((off**2).mean())), float(1 - (off**2).sum() / ((truth - truth.mean(0)) ** 2).sum())
