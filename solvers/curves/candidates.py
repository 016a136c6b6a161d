"""The candidates for the curve of a model, and the choice between them by cross-validation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from solvers.curves.mixture import fit_mixture
from solvers.curves.observations import CurvePlaces, CurvePrediction, Floats, Observations
from solvers.curves.plain import fit_local, fit_table
from solvers.curves.shapes import Phases, PowerLaw, TwoPieces

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
