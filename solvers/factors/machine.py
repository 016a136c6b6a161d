"""A factorization machine trained by FTRL-Proximal, one for each target of a sample (OLTunes, 3.3.1).

Features are categories (one-hot: the model, the GPU type, the batch) and numbers (their logarithms are up to the
caller)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from solvers.factors import kernels

Floats = npt.NDArray[np.float64]

SEED = 0  # of the draws: the same samples are learned alike
FIRST_FACTOR = 0.1  # size of a factor's random start: at 0 its slope would stay 0


@dataclass(frozen=True)
class FactorSample:
    """The features of a configuration, and its measurements."""

    categories: Mapping[str, str]  # kind -> which
    numbers: Mapping[str, float] = field(default_factory=dict)
    targets: tuple[float, ...] = ()


@dataclass(frozen=True)
class LearningRates:
    """FTRL-Proximal's parameters: eta is the rate, zeta its start, l1 and l2 keep weights small."""

    eta: float = 0.3
    zeta: float = 1.0
    l1: float = 0.0
    l2: float = 0.01
    l2_factors: float = 0.1
    rank: int = 4
    passes: int = 60

    def make_array(self) -> Floats:
        return np.array([self.eta, self.zeta, self.l1, self.l2, self.l2_factors])


class FactorLearner:
    """Predicts the targets of configurations never measured."""

    def __init__(self, targets: int, rates: LearningRates | None = None) -> None:
        self.rates = rates or LearningRates()
        self._draw = np.random.default_rng(SEED)
        self._index: dict[tuple[str, str], int] = {}
        self._centre, self._scale = np.zeros(targets), np.ones(targets)
        self._number_scale: dict[str, tuple[float, float]] = {}
        self._machines = [_empty(self.rates.rank) for _ in range(targets)]

    def fit(self, samples: Sequence[FactorSample]) -> FactorLearner:
        """Forgets everything and learns these samples in several passes, each in a random order."""
        targets = np.array([sample.targets for sample in samples])
        self._centre = targets.mean(0)
        self._scale = np.where(targets.std(0) > 0, targets.std(0), 1.0)
        for kind in sorted({kind for sample in samples for kind in sample.numbers}):
            found = np.array([sample.numbers[kind] for sample in samples if kind in sample.numbers])
            self._number_scale[kind] = (float(found.mean()), float(found.std()) or 1.0)
        self._index = {}
        self._machines = [_empty(self.rates.rank) for _ in self._machines]
        places, values = self._rows(samples)
        for target, machine in enumerate(self._machines):
            wanted = (targets[:, target] - self._centre[target]) / self._scale[target]
            for _ in range(self.rates.passes):
                order = self._draw.permutation(len(wanted)).astype(np.int64)
                machine.learn(places, values, wanted, order, self.rates)
        return self

    def predict(self, sample: FactorSample) -> tuple[float, ...]:
        """Returns the targets expected there."""
        places, values = self._rows([sample], learns=False)
        return tuple(
            float(self._centre[target] + self._scale[target] * machine.predict(places[0], values[0]))
            for target, machine in enumerate(self._machines)
        )

    def _rows(self, samples: Sequence[FactorSample], learns: bool = True) -> tuple[kernels.Array, Floats]:
        """Returns numbers and values of features; a category that was never seen is left out of a prediction."""
        rows = []
        for sample in samples:
            row = []
            for kind, which in sorted(sample.categories.items()):
                place = self._place((kind, which), learns)
                if place is not None:
                    row.append((place, 1.0))
            for kind, number in sorted(sample.numbers.items()):
                place = self._place((kind, "number"), learns)
                middle, spread = self._number_scale.get(kind, (0.0, 1.0))
                if place is not None:
                    row.append((place, (number - middle) / spread))
            rows.append(row)
        width = max([1, *(len(row) for row in rows)])
        padded = [row + [(0, 0.0)] * (width - len(row)) for row in rows]
        places = np.array([[place for place, _ in row] for row in padded], dtype=np.int64)
        return places, np.array([[value for _, value in row] for row in padded])

    def _place(self, feature: tuple[str, str], learns: bool) -> int | None:
        place = self._index.get(feature)
        if place is None and learns:
            place = self._index[feature] = len(self._index)
            self._machines = [machine.grown(self._draw, self.rates) for machine in self._machines]
        return place


@dataclass(frozen=True)
class FactorMachine:
    """The state of one target: (z, n) and the weight of each feature's w and V, and of the bias."""

    z: Floats
    n: Floats
    weights: Floats
    bias: Floats

    def learn(
        self, places: kernels.Array, values: Floats, targets: Floats, order: kernels.Array, rates: LearningRates
    ) -> None:
        kernels.learn(places, values, targets, order, self.z, self.n, self.weights, self.bias, rates.make_array())

    def predict(self, places: kernels.Array, values: Floats) -> float:
        return float(kernels.predict(places, values, self.weights, float(self.bias[0])))

    def grown(self, draw: np.random.Generator, rates: LearningRates) -> FactorMachine:
        """Returns the machine with one more feature: its w is 0, its V small and random."""
        factors = FIRST_FACTOR * draw.standard_normal(self.z.shape[1] - 1)
        weights = np.concatenate(([0.0], factors))[None]
        # The state from which Algorithm 1 computes just these weights.
        z = -weights * (rates.zeta / rates.eta + rates.l2_factors)
        return replace(
            self,
            z=np.concatenate((self.z, z)),
            n=np.concatenate((self.n, np.zeros_like(z))),
            weights=np.concatenate((self.weights, weights)),
        )


def _empty(rank: int) -> FactorMachine:
    nothing = np.zeros((0, rank + 1))
    return FactorMachine(nothing, nothing.copy(), nothing.copy(), np.zeros(3))
