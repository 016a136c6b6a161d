"""The knapsack over watts: its optimum is proved, its LP bound holds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solvers.morak.power.knapsack import Front, bound_by_relaxation, exact, greedy, worth
from tests.support.soak import scaled


@st.composite
def fronts(draw: st.DrawFn, most: int = 4) -> list[Front]:
    found = []
    for _ in range(draw(st.integers(1, most))):
        steps = draw(st.lists(st.tuples(st.floats(0.1, 50), st.floats(0.1, 50)), max_size=4))
        watts = np.concatenate(([0.0], np.cumsum([step[0] for step in steps])))
        yields = np.concatenate(([0.0], np.cumsum([step[1] for step in steps])))
        found.append(Front(watts, yields, draw(st.integers(1, 2))))
    return found


def best(choices: list[Front], room_w: float) -> float:
    each = [list(zip(f.watts, f.worth, strict=True)) for f in choices for _ in range(f.gpus)]
    return max(
        float(sum(gain for _, gain in picks))
        for picks in product(*each)
        if sum(watts for watts, _ in picks) <= room_w * (1 - 1e-12)
    )


def drawn(choices: list[Front], picks: list[list[int]] | tuple[tuple[int, ...], ...]) -> float:
    return sum(float(front.watts[list(chosen)].sum()) for front, chosen in zip(choices, picks, strict=True))


@pytest.mark.slow
@settings(max_examples=scaled(600, 60), deadline=None)
@given(fronts(3), st.floats(0, 300))
def test_exact_is_brute_force_and_the_lp_bounds_it(choices: list[Front], room_w: float) -> None:
    choice = exact(choices, room_w, 10**6)
    assert choice.is_proved
    assert drawn(choices, choice.picks) <= room_w
    assert abs(worth(choices, choice.picks) - best(choices, room_w)) <= 1e-9 * (1 + best(choices, room_w))
    assert bound_by_relaxation(choices, room_w).bound >= choice.bound >= worth(choices, choice.picks) * (1 - 1e-12)
    assert worth(choices, greedy(choices, room_w)) <= worth(choices, choice.picks) + 1e-9


@settings(max_examples=scaled(600, 60), deadline=None)
@given(fronts(), st.floats(0, 300), st.integers(0, 40), st.integers(1, 4))
def test_an_interrupted_search_bounds_what_it_dropped(
    choices: list[Front], room_w: float, budget: int, states: int
) -> None:
    hurried, whole = exact(choices, room_w, budget, states), exact(choices, room_w, 10**6)
    assert drawn(choices, hurried.picks) <= room_w
    assert hurried.bound >= worth(choices, whole.picks) * (1 - 1e-9)
    if hurried.is_proved:
        assert abs(worth(choices, hurried.picks) - worth(choices, whole.picks)) <= 1e-9 * (1 + whole.bound)


@pytest.mark.parametrize("room_w", [0.0, 5e-324, 1e-323, 0.5, 1.0, 2.5])
def test_options_that_differ_by_next_to_no_watts_are_compared(room_w: float) -> None:
    choices = [Front(np.array([0.0, 5e-324, 1.0]), np.array([1.0, 2.0, 3.0]), 2)]
    with np.errstate(all="raise", under="ignore"):
        choice, bound = exact(choices, room_w, 10**6), bound_by_relaxation(choices, room_w).bound
    assert choice.is_proved
    assert bound >= worth(choices, choice.picks) == best(choices, room_w)
