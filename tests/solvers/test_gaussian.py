"""Gaussian processes against what a textbook says of them, in plain loops."""

from __future__ import annotations

from math import exp, log, pi, sqrt

import numpy as np
import pytest

from solvers.gaussian import Floats, fit_gaussian, matern

PLACES = np.array([0.0, 1.0, 2.5, 4.0, 7.0])
VALUES = np.array([0.3, -0.2, 0.9, 1.1, -0.7])
NOISE = 0.01


def own(places: Floats, smoothness: int = 3) -> Floats:
    found: Floats = matern(places, places, 2.0, smoothness) + NOISE * np.eye(len(places))
    return found


@pytest.mark.parametrize(("smoothness", "bend"), [(3, 0.0), (5, 1 / 3)])
def test_the_correlation_is_materns(smoothness: int, bend: float) -> None:
    table = matern(PLACES, PLACES[:3], 2.0, smoothness)
    for row, left in enumerate(PLACES):
        for column, right in enumerate(PLACES[:3]):
            distance = sqrt(smoothness) * abs(left - right) / 2.0
            expected = (1 + distance + bend * distance**2) * exp(-distance)
            assert table[row, column] == pytest.approx(expected, rel=1e-12)


def test_seen_values_are_believed_one_after_the_other() -> None:
    """Bayes' rule, applied to one value at a time, comes to the same mean, deviation and likelihood."""
    mean, covariance = np.zeros(8), matern(np.arange(8.0), np.arange(8.0), 2.0)
    seen = [0, 3, 5]
    likelihood = 0.0
    for place, value in zip(seen, VALUES, strict=False):
        spread = covariance[place, place] + NOISE
        off = value - mean[place]
        likelihood -= 0.5 * (off**2 / spread + log(spread))
        gain = covariance[:, place] / spread
        mean, covariance = mean + gain * off, covariance - np.outer(gain, covariance[place])
    fit = fit_gaussian(own(np.array(seen, float)), VALUES[:3])
    cross = matern(np.arange(8.0), np.array(seen, float), 2.0)
    np.testing.assert_allclose(fit.means(cross), mean, atol=1e-12)
    np.testing.assert_allclose(fit.deviations(1.0, cross) ** 2, np.diag(covariance), atol=1e-12)
    before = matern(np.arange(8.0), np.arange(8.0), 2.0)
    np.testing.assert_allclose(fit.covariances(before, cross), covariance, atol=1e-12)
    assert float(fit.log_likelihood) == pytest.approx(likelihood, abs=1e-12)


def test_the_likelihood_is_the_normal_distributions_without_its_constant() -> None:
    from scipy.stats import multivariate_normal

    constant = 0.5 * len(VALUES) * log(2 * pi)
    expected = multivariate_normal(np.zeros(len(VALUES)), own(PLACES)).logpdf(VALUES) + constant
    assert float(fit_gaussian(own(PLACES), VALUES).log_likelihood) == pytest.approx(float(expected), abs=1e-9)


def test_a_stack_of_processes_is_each_of_them() -> None:
    covariances = np.array([own(PLACES), own(PLACES, 5), own(2 * PLACES)])
    values = np.array([VALUES, -VALUES, VALUES[::-1]])
    stack = fit_gaussian(covariances, values)
    cross = matern(np.array([0.5, 3.0]), PLACES, 2.0)
    for row, (covariance, value) in enumerate(zip(covariances, values, strict=True)):
        alone = fit_gaussian(covariance, value)
        np.testing.assert_allclose(stack.weights[row], alone.weights, rtol=1e-12)
        assert stack.log_likelihood[row] == pytest.approx(float(alone.log_likelihood), rel=1e-12)
        np.testing.assert_allclose(stack.deviations(1.0, np.array([cross] * 3))[row], alone.deviations(1.0, cross))


def test_what_is_no_covariance_makes_nothing_likely() -> None:
    fit = fit_gaussian(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([1.0, 2.0]))
    assert float(fit.log_likelihood) == -np.inf
    assert fit.deviations(1.0, np.array([[3.0, 3.0]]))[0] == 0.0, "less than nothing is left: nothing"
