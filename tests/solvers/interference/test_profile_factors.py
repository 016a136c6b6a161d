"""Pressures and sensitivities of Profiles from measured pairs, by one factor or two."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from solvers.interference.choice import choose_profile_shape
from solvers.interference.factors import ONE_FACTOR
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation, WrongObservation
from solvers.interference.profile_factors import MeasuredFactors, pressure_and_sensitivity
from solvers.interference.pure_factors import BANDWIDTH, COMPUTE, FactorMatrices, purify
from tests.solvers.interference.families import PRESSURE, SENSITIVITY, declared_pairs

GROWTH = {20: np.array([0.4, 0.8]), 50: np.array([1.0, 1.0])}  # of pressures: bandwidth is soon used up


def pairs_of_two_factors(
    seed: int, models: int = 6, noise: float = 0.0, prefix: str = "m"
) -> tuple[list[SlowdownObservation], np.ndarray, np.ndarray]:
    """Draws sensitivities and pressures [model, factor]; the first model presses on compute alone, the second not."""
    draw = np.random.default_rng(seed)
    sensitivities, pressures = draw.uniform(0.1, 1.0, (2, models, 2))
    pressures[0, 1] = pressures[1, 0] = 0.0
    pressures[:, :] /= pressures.max(0)
    pairs = [
        SlowdownObservation(
            SharedRun(f"{prefix}{mine}", 50, (Neighbour(f"{prefix}{other}", percent),)),
            (1 + sensitivities[mine] @ (pressures[other] * GROWTH[percent]))
            * float(np.exp(noise * draw.standard_normal())),
        )
        for mine, other, percent in product(range(models), range(models), GROWTH)
    ]
    return pairs, sensitivities, pressures


def sensitivities_of(found: dict[str, MeasuredFactors]) -> np.ndarray:
    return np.array([[value.mean for value in found[model].sensitivity.values()] for model in sorted(found)])


def test_exact_pairs_give_back_what_made_them() -> None:
    found = pressure_and_sensitivity(declared_pairs())
    for model, sensitivity in SENSITIVITY.items():
        measured = found[model]
        assert measured.sensitivity.keys() == measured.pressure.keys() == {COMPUTE}
        assert measured.sensitivity[COMPUTE].mean == pytest.approx(sensitivity, rel=0.02)
        for percent in (20, 50):
            assert measured.pressure[COMPUTE][percent].mean == pytest.approx(PRESSURE[model, percent], rel=0.02)


def test_noise_shows_as_spread_and_the_truth_lies_within_it() -> None:
    exact, noisy = (pressure_and_sensitivity(declared_pairs(noise, samples=20)) for noise in (0.0, 0.03))
    for model in SENSITIVITY:
        sharp, blurred = exact[model].sensitivity[COMPUTE], noisy[model].sensitivity[COMPUTE]
        assert sharp.q90 - sharp.mean < 0.1 * (blurred.q90 - blurred.mean)
        assert abs(blurred.mean - SENSITIVITY[model]) < 4 * (blurred.q90 - blurred.mean)


def test_what_was_not_measured_is_left_out() -> None:
    found = pressure_and_sensitivity([SlowdownObservation(SharedRun("a", 50, (Neighbour("b", 20),)), 1.2)])
    assert found["a"].pressure == {}
    assert found["b"].sensitivity == {}
    assert pressure_and_sensitivity([]) == {}


def test_faster_beside_others_is_no_slowdown() -> None:
    found = pressure_and_sensitivity([SlowdownObservation(SharedRun("a", 50, (Neighbour("b", 20),)), 0.9)])
    assert 0 <= found["a"].sensitivity[COMPUTE].mean * found["b"].pressure[COMPUTE][20].mean < 0.03
    with pytest.raises(WrongObservation, match="against the model alone"):
        pressure_and_sensitivity([SlowdownObservation(SharedRun("a", 50, (Neighbour("b", 20),), against=100), 0.9)])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_two_factors_give_back_what_made_them(seed: int) -> None:
    pairs, sensitivities, pressures = pairs_of_two_factors(seed)
    found = pressure_and_sensitivity(pairs)
    assert sensitivities_of(found) == pytest.approx(sensitivities, abs=0.03)
    for number, model in enumerate(sorted(found)):
        by_factor = found[model].pressure
        assert tuple(by_factor) == (COMPUTE, BANDWIDTH)
        for percent, growth in GROWTH.items():
            measured = [by_factor[name][percent].mean for name in by_factor]
            assert measured == pytest.approx(pressures[number] * growth, abs=0.03)


@pytest.mark.slow
def test_the_two_factors_are_those_of_the_data_whatever_the_search_starts_from() -> None:
    """Names order the parameters, so that other names start the search elsewhere."""
    pairs, sensitivities, _ = pairs_of_two_factors(1, noise=0.01)
    backwards = {f"m{number}": f"n{9 - number}" for number in range(6)}
    renamed = [
        SlowdownObservation(
            SharedRun(
                backwards[each.run.model],
                50,
                tuple(Neighbour(backwards[other.model], other.sm_percent) for other in each.run.neighbours),
            ),
            each.slowdown,
        )
        for each in pairs
    ]
    first, again, other = (pressure_and_sensitivity(each) for each in (pairs, pairs, renamed))
    assert first == again
    assert sensitivities_of(first) == pytest.approx(sensitivities_of(other)[::-1], abs=0.02)
    assert sensitivities_of(first) == pytest.approx(sensitivities, abs=0.15)


@pytest.mark.slow
def test_one_factor_is_found_where_one_made_the_data() -> None:
    for noise in (0.01, 0.1):
        assert choose_profile_shape(declared_pairs(noise)) == ONE_FACTOR


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_negative_and_nothing_is_surer_than_its_mean(seed: int) -> None:
    for noise in (0.01, 0.3):
        for measured in pressure_and_sensitivity(pairs_of_two_factors(seed, 4, noise)[0]).values():
            values = [*measured.sensitivity.values(), *(v for by in measured.pressure.values() for v in by.values())]
            assert all(0 <= value.mean <= value.q90 for value in values)


def test_few_mixes_have_one_factor() -> None:
    pairs = [each for each in pairs_of_two_factors(0)[0] if each.run.models <= {"m0", "m1"}]
    assert pressure_and_sensitivity(pairs)["m0"].sensitivity.keys() == {COMPUTE}


def test_mixing_two_factors_changes_nothing_of_their_pure_form() -> None:
    draw = np.random.default_rng(0)
    sensitivities, pressures = draw.uniform(0.1, 1.0, (5, 2)), draw.uniform(0.1, 1.0, (5, 2))
    mixing = np.array([[1.0, 0.3], [0.2, 1.0]])
    sources = [(name, 50) for name in "abcde"]
    mixed = FactorMatrices(sensitivities @ np.linalg.inv(mixing).T, pressures @ mixing)
    found, again = (purify(each, sources) for each in (FactorMatrices(sensitivities, pressures), mixed))
    assert found
    assert again
    assert found.pressures == pytest.approx(again.pressures)
    assert found.sensitivities == pytest.approx(again.sensitivities)
    assert found.sensitivities @ found.pressures.T == pytest.approx(sensitivities @ pressures.T)
    assert (found.pressures >= 0).all()
    assert (found.pressures == 0).sum() == 2, "each pure neighbour presses on one factor alone"


def test_neighbours_of_one_kind_have_no_second_factor() -> None:
    alike = FactorMatrices(np.ones((3, 2)), np.outer([1.0, 0.5, 0.2], [1.0, 2.0]))
    assert purify(alike, [("a", 50), ("b", 50), ("c", 50)]) is None
