"""Factors of a model never measured beside others follow from models whose traits are alike."""

from __future__ import annotations

from itertools import product
from math import exp

import numpy as np

from lab.interference import factors_by_traits
from lab.interference.traits import Traits
from solvers.interference import factors
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation

TRAIT = {f"m{number}": number / 8 for number in range(9)}
STRANGER = "m7"


def slowdown(mine: str, other: str) -> float:
    return 1 + (0.2 + TRAIT[mine]) * exp(2 * TRAIT[other] - 2)


def test_a_strangers_pressure_and_sensitivity_are_those_of_models_like_it() -> None:
    pairs = {
        (mine, other): SlowdownObservation(SharedRun(mine, 50, (Neighbour(other, 50),)), slowdown(mine, other))
        for mine, other in product(TRAIT, TRAIT)
    }
    traits = Traits({model: (value,) for model, value in TRAIT.items()})
    known = [each for models, each in pairs.items() if STRANGER not in models]
    judged = [each for models, each in pairs.items() if STRANGER in models]
    runs, truth = [each.run for each in judged], np.log([each.slowdown for each in judged])
    average = factors.fit_scalar(known)
    for fit in (factors_by_traits.fit_scalar, factors_by_traits.fit_two_linear_factors):
        fitted = fit(known, traits)
        missed, missed_by_average = (np.abs(each.log_slowdowns(runs) - truth).mean() for each in (fitted, average))
        assert missed < 0.4 * missed_by_average
    seen = [each.run for each in known]
    same = factors_by_traits.fit_scalar(known, traits).log_slowdowns(seen)
    assert np.allclose(same, average.log_slowdowns(seen)), "what was measured stays as it is fitted"
