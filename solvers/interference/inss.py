"""InSS's model of interference: what neighbours use of the L2 cache, and waiting by their number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.interference.candidate import Floats
from solvers.interference.observation import SharedRun, SlowdownObservation

ROUNDS = 30
SMALL_RIDGE = 1e-6
LEAST_SLOWDOWN = 1.0


@dataclass(frozen=True)
class FittedL2:
    """InSS: slowdown = 1 + a_model x sum of the neighbours' L2 use (linear in SM%) + scheduling by their number."""

    sensitivities: dict[str, float]
    use: dict[str, tuple[float, float]]  # at SM% 0, and more at 100
    scheduling: tuple[float, float]

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        usual_sensitivity = float(np.mean(list(self.sensitivities.values())))
        usual_use = tuple(np.mean(list(self.use.values()), axis=0))
        found = []
        for run in runs:
            pairs = [(self.use.get(each.model, usual_use), each.sm_percent / 100) for each in run.neighbours]
            l2 = sum(start + more * share for (start, more), share in pairs)
            waits = self.scheduling[0] + self.scheduling[1] * len(pairs) if pairs else 0.0
            found.append(1 + self.sensitivities.get(run.model, usual_sensitivity) * l2 + waits)
        return np.log(np.maximum(found, LEAST_SLOWDOWN))


def fit_inss(observations: Sequence[SlowdownObservation]) -> FittedL2:
    """Fits InSS's coefficients in turns, each a least-squares problem without negative weights."""
    from scipy.optimize import nnls  # a fifth of a second, which only a fit needs

    models = sorted({model for each in observations for model in each.run.models})
    index = {model: at for at, model in enumerate(models)}
    extra = np.array([each.slowdown - 1 for each in observations])
    count = np.array([float(len(each.run.neighbours)) for each in observations])
    mixes = np.zeros((len(observations), 2 * len(models)))
    for row, each in enumerate(observations):
        for neighbour in each.run.neighbours:
            mixes[row, 2 * index[neighbour.model]] += 1
            mixes[row, 2 * index[neighbour.model] + 1] += neighbour.sm_percent / 100
    victim = np.array([index[each.run.model] for each in observations])
    waits = np.column_stack((count > 0, count))
    sensitivities, use, scheduling = np.ones(len(models)), np.zeros(2 * len(models)), np.zeros(2)
    ridge = np.sqrt(SMALL_RIDGE * len(observations)) * np.eye(2 * len(models) + 2)
    for _ in range(ROUNDS):
        table = np.vstack((np.hstack((sensitivities[victim, None] * mixes, waits)), ridge))
        found = nnls(table, np.concatenate((extra, np.zeros(len(ridge)))))[0]
        use, scheduling = found[:-2], found[-2:]
        l2, left = mixes @ use, extra - waits @ scheduling
        above = np.bincount(victim, l2 * left, len(models))
        below = np.bincount(victim, l2 * l2, len(models)) + 1e-12
        sensitivities = np.where(below > 1e-9, np.maximum(above / below, 0.0), 1.0)
    return FittedL2(
        dict(zip(models, sensitivities.tolist(), strict=True)),
        {model: (float(use[2 * at]), float(use[2 * at + 1])) for at, model in enumerate(models)},
        (float(scheduling[0]), float(scheduling[1])),
    )
