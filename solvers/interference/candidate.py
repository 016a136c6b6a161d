"""The seam of all models of interference: fit observations, then predict the slowdown of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from solvers.interference.observation import SharedRun, SlowdownObservation

Floats = npt.NDArray[np.float64]


class FittedInterference(Protocol):
    """The data that a fit learns from."""

    def log_slowdowns(self, runs: Sequence[SharedRun]) -> Floats:
        """Predicts the logarithms of the runs' slowdowns."""


@dataclass(frozen=True, slots=True)
class InterferenceCandidate:
    """A way to model interference, and which observations it can be fitted to."""

    name: str
    fit: Callable[[Sequence[SlowdownObservation]], FittedInterference]
    takes_relative: bool = False  # observations `against` another SM%
    bends: bool = False  # by exponents and its own SM%: the same as a linear one for pairs at one SM%

    def suits(self, observations: Sequence[SlowdownObservation]) -> bool:
        """Returns whether it can be fitted to these observations."""
        if not self.takes_relative and any(each.run.against is not None for each in observations):
            return False
        return not (self.bends and _are_pairs_at_one_sm_percent(observations))


def _are_pairs_at_one_sm_percent(observations: Sequence[SlowdownObservation]) -> bool:
    runs = [each.run for each in observations]
    levels = {each for run in runs for each in (run.sm_percent, run.against) if each is not None}
    return len(levels) < 2 and all(len(run.neighbours) < 2 for run in runs)
