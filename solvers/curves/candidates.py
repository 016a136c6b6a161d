"""The candidates for the curve of a model, and the choice between them by cross-validation.

Two know no physics: interpolation in the table of measurements, and InSS's locally weighted regression. The uncertainty
that both state is their error when they predict each measurement from the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from solvers.curves.mixture import fit_mixture
from solvers.curves.observations import CurvePlaces, CurvePrediction, Floats, Observations
from solvers.curves.shapes import Phases, PowerLaw, TwoPieces

BANDWIDTHS = (0.7, 1.4, 2.8)  # doublings of batch or SM%
RIDGE = 1e-3

Predict = Callable[[Observations, CurvePlaces], Floats]


@dataclass(frozen=True)
class Plain:
    """A rule that predicts log(latency) from measurements, with one deviation for all places."""

    name: str
    observed: Observations
    rule: Predict
    errors: Floats

    def predict(self, at: CurvePlaces) -> CurvePrediction:
        mean = self.rule(self.observed, at)
        return CurvePrediction(mean, np.full(len(at), float(np.mean(self.errors**2))), np.zeros(len(at)))

    @property
    def left_out(self) -> tuple[Floats, Floats]:
        return self.errors, np.full(len(self.observed), float(np.sqrt(np.mean(self.errors**2))))


def fit_table(observed: Observations) -> Plain:
    return Plain("table", observed, interpolate, _left_out(interpolate, observed))


def fit_local(observed: Observations) -> Plain:
    """Chooses the bandwidth that predicts left-out measurements best."""
    rules = [_local(bandwidth) for bandwidth in BANDWIDTHS]
    left = [_left_out(rule, observed) for rule in rules]
    best = min(range(len(rules)), key=lambda index: (float(np.abs(left[index]).mean()), index))
    return Plain("local regression", observed, rules[best], left[best])


def interpolate(observed: Observations, at: CurvePlaces) -> Floats:
    """Interpolates linearly between measurements on logarithms, and takes the nearest one beyond them."""
    from scipy.interpolate import LinearNDInterpolator, NearestNDInterpolator  # only this curve needs them
    from scipy.spatial import QhullError

    known, wanted = _points(observed.places), _points(at)
    values: Floats = NearestNDInterpolator(known, observed.logarithms)(wanted)
    try:
        inside: Floats = LinearNDInterpolator(known[:, :2], observed.logarithms)(wanted[:, :2])
    except (QhullError, ValueError):  # fewer than three measurements, or all on a line
        return values
    return np.where(np.isfinite(inside), inside, values)


def _local(bandwidth: float) -> Predict:
    def regress(observed: Observations, at: CurvePlaces) -> Floats:
        known = _points(observed.places)
        return np.array([_fit_plane(known, observed.logarithms, point, bandwidth) for point in _points(at)])

    return regress


def _fit_plane(known: Floats, values: Floats, point: Floats, bandwidth: float) -> float:
    """Fits a plane around a point, with weights that fall with the distance to it."""
    offsets = known - point
    weights = np.exp(-0.5 * (offsets**2).sum(axis=1) / bandwidth**2) + 1e-9
    columns = np.column_stack([np.ones(len(known)), offsets])
    normal = columns.T @ (weights[:, None] * columns) + RIDGE * np.diag([0.0, 1.0, 1.0, 1.0])
    return float(np.linalg.solve(normal, columns.T @ (weights * values))[0])


def _points(at: CurvePlaces) -> Floats:
    return np.column_stack([np.log2(at.batch), np.log2(at.share), np.log2(at.slowing)])


def _left_out(rule: Predict, observed: Observations) -> Floats:
    errors = np.empty(len(observed))
    for index in range(len(observed)):
        predicted = rule(observed.without(index), observed.places.only(index))
        errors[index] = observed.logarithms[index] - predicted[0]
    return errors


LEAST_TO_COMPARE = 6  # measurements, below which the first candidate is taken


class CurveCandidate(Protocol):
    """A curve fitted to measurements."""

    @property
    def name(self) -> str: ...

    def predict(self, at: CurvePlaces) -> CurvePrediction: ...

    @property
    def left_out(self) -> tuple[Floats, Floats]:
        """Returns each measurement's error and deviation when it is predicted from the others."""
        ...


CANDIDATES: dict[str, Callable[[Observations], CurveCandidate]] = {
    "phases": lambda observed: fit_mixture(Phases(), observed),
    "two pieces": lambda observed: fit_mixture(TwoPieces(), observed),
    "power law": lambda observed: fit_mixture(PowerLaw(), observed),
    "table": fit_table,
    "local regression": fit_local,
}
PLAIN = ("table", "local regression")


def best_candidate(observed: Observations) -> CurveCandidate:
    """Returns the first candidate, unless another errs less by more than one standard error of the difference.

    The first one knows most physics, so chance alone must not replace it.
    """
    names = [name for name in CANDIDATES if name not in PLAIN or len(set(observed.places.slowing)) == 1]
    if len(observed) < LEAST_TO_COMPARE:
        names = names[:1]
    fitted = [CANDIDATES[name](observed) for name in names]
    if len(fitted) == 1:
        return fitted[0]
    misses = [np.abs(candidate.left_out[0]) for candidate in fitted]
    chosen = 0
    for index in range(1, len(fitted)):
        gain = misses[0] - misses[index]
        sure = float(gain.mean()) > float(gain.std(ddof=1)) / np.sqrt(len(gain))
        if sure and float(misses[index].mean()) < float(misses[chosen].mean()):
            chosen = index
    return fitted[chosen]
