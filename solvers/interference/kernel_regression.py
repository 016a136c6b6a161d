"""Kernel regression: values of a thing never measured are the mean of things alike, in numbers known of all.

Things are alike where their numbers are, relative to how much those differ. How far likeness reaches is chosen by
leaving out each thing with its kin; the widest reach is the mean of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solvers.interference.candidate import Floats

REACHES = (0.25, 0.5, 1.0, 2.0, 100.0)  # in standard deviations of a number


@dataclass(frozen=True, slots=True)
class KernelRegression:
    """Values by numbers, the reach that predicts left-out things best, and what it predicted less what they are."""

    numbers: Floats  # [thing, number]
    values: Floats  # [thing, value]
    reach: float
    left_out: Floats  # as values; nothing where all things are kin

    def predict(self, numbers: Floats) -> Floats:
        """Returns the values of a thing with these numbers."""
        found: Floats = _weigh(_gaps(self.numbers, numbers[None]), self.values, self.reach)[0]
        return found


def fit_kernel(numbers: Floats, values: Floats, kin: Sequence[str]) -> KernelRegression:
    """Returns the regression of the things' values on their numbers; `kin` names the family of each."""
    is_kin = np.equal.outer(kin, kin)
    judged = ~is_kin.all(1)
    gaps = np.where(is_kin, np.inf, _gaps(numbers, numbers))[judged]
    errors = [_weigh(gaps, values, reach) - values[judged] for reach in REACHES]
    best = int(np.argmin([float(np.abs(each).mean()) for each in errors])) if judged.any() else -1
    return KernelRegression(numbers, values, REACHES[best], errors[best])


def _gaps(known: Floats, asked: Floats) -> Floats:
    """Returns mean squared differences, [asked, known]."""
    spread = np.where(known.std(0) > 0, known.std(0), 1.0)
    found: Floats = (((asked[:, None] - known[None]) / spread) ** 2).mean(2)
    return found


def _weigh(gaps: Floats, values: Floats, reach: float) -> Floats:
    nearest = gaps.min(1, keepdims=True)
    weights = np.exp(-0.5 * (gaps - nearest) / reach**2)
    found: Floats = weights @ values / weights.sum(1, keepdims=True)
    return found
