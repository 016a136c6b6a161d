"""The search for the largest rate of a grid."""

from __future__ import annotations

import numpy as np
import pytest

from solvers.llm.capacity import largest, rate_of, step_of


@pytest.mark.parametrize("rise", [0.003, 0.05, 0.8])
def test_the_step_is_found_wherever_the_search_starts_and_within_few_looks(rise: float) -> None:
    generator = np.random.default_rng(6)
    looks = 0
    for _ in range(200):
        wanted = int(generator.integers(0, 2047))

        def excess(step: int, wanted: int = wanted) -> float:
            nonlocal looks
            looks += 1
            assert 1 <= step <= 2046
            return rise * (step - wanted - 0.5)

        assert largest(excess, wanted + int(generator.integers(-20, 21)), 2046) == wanted
    assert looks <= 200 * 8


def test_a_server_that_misses_every_promise_has_step_0_and_one_that_misses_none_the_last() -> None:
    assert largest(lambda _: 1.0, 300, 900) == 0
    assert largest(lambda _: -1.0, 300, 900) == 900


def test_the_step_of_a_rate_is_the_largest_whose_rate_is_no_more() -> None:
    assert [step_of(rate_of(step) * 1.001) for step in (0, 1, 700)] == [0, 1, 700]
    assert (step_of(1e-9), step_of(float("inf"))) == (0, 2047)
