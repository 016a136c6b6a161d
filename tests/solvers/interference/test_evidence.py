"""Few mixes, of which none can be left out, are judged by their evidence."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.interference.choice import fit
from solvers.interference.evidence import evidence_weights
from solvers.interference.factors import ONE_FACTOR, TWO_FACTORS
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from tests.solvers.interference.families import declared_pairs


def pairs_of_two(extra: dict[tuple[str, str], float]) -> list[SlowdownObservation]:
    """Returns the four slowdowns of two models in three pairs; `extra` is what each adds to 1."""
    return [SlowdownObservation(SharedRun(a, 50, (Neighbour(b, 50),)), 1 + more) for (a, b), more in extra.items()]


OPPOSITES = {("a", "a"): 1.0, ("a", "b"): 0.1, ("b", "a"): 0.2, ("b", "b"): 0.8}


SENSITIVITY, PRESSURE = {"a": 0.4, "b": 1.0}, {"a": 0.5, "b": 1.0}
ONE = {(mine, other): SENSITIVITY[mine] * PRESSURE[other] for mine, other in OPPOSITES}


def test_two_alike_that_hurt_each_other_more_are_evidence_of_two_factors() -> None:
    assert evidence_weights(pairs_of_two(OPPOSITES), [ONE_FACTOR, TWO_FACTORS])[1] > 0.5


@pytest.mark.slow
def test_one_factor_has_the_better_evidence_where_it_made_the_data() -> None:
    weights = evidence_weights(declared_pairs(noise=0.03), [ONE_FACTOR, TWO_FACTORS])
    assert weights[0] > 0.5
    assert weights.sum() == pytest.approx(1)


def test_three_mixes_choose_the_better_pair_and_are_safe_where_one_factor_holds() -> None:
    chosen = fit(pairs_of_two(OPPOSITES))
    assert chosen.method.startswith("blend: two linear factors")
    mixed, alike = chosen.fitted.log_slowdowns([SharedRun("b", 50, (Neighbour(other, 50),)) for other in "ab"])
    assert mixed < alike
    pairs = pairs_of_two(ONE)
    predicted = np.exp(fit(pairs).fitted.log_slowdowns([each.run for each in pairs]))
    assert predicted == pytest.approx([each.slowdown for each in pairs], rel=0.03)
