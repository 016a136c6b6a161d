"""Copies are divided into shapes by their rates, and stay where they are if they can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from agents.gateway.cluster.shapes import LARGEST_WEIGHT, MOST_SHAPES, NO_COPY, CopyEndpoint, divide_copies
from agents.gateway.wire import RouteSpec

RATES = some.floats(1e-6, 1e9)


def route(number: int, weight: float, drained: bool = False) -> RouteSpec:
    return RouteSpec(f"c{number}", "shop/search", f"10.0.0.1:{number + 1}", weight, drained)


def endpoint(number: int) -> CopyEndpoint:
    return CopyEndpoint(f"c{number}", f"10.0.0.1:{number + 1}")


@given(some.lists(some.tuples(RATES, some.booleans()), max_size=40), some.lists(some.sets(some.integers(0, 15))))
def test_every_copy_that_is_not_drained_is_in_one_shape_and_weights_are_rates(
    copies: list[tuple[float, bool]], places: list[set[int]]
) -> None:
    routes = [route(number, *copy) for number, copy in enumerate(copies)]
    shapes = divide_copies(routes, {endpoint(number): place for number, place in enumerate(places)})
    served = [each for shape in shapes.values() for each in shape.endpoints]
    wanted = {endpoint(number) for number, (_, drained) in enumerate(copies) if not drained}
    assert (len(served), set(served)) == (len(wanted), wanted)
    assert len(shapes) <= MOST_SHAPES
    assert set(shapes) <= set(range(MOST_SHAPES))
    if wanted:
        rates = {endpoint(number): rate for number, (rate, _) in enumerate(copies)}
        sums = {place: sum(rates[each] for each in shape.endpoints) for place, shape in shapes.items()}
        scale = min(1000, LARGEST_WEIGHT / max(sums.values()))
        for place, shape in shapes.items():
            assert shape.endpoints
            assert 1 <= shape.weight <= LARGEST_WEIGHT
            assert shape.weight == pytest.approx(sums[place] * scale, abs=1)
    else:
        assert shapes == NO_COPY


def test_copies_of_the_nearest_rates_share_a_shape_where_there_are_too_many() -> None:
    shapes = divide_copies([route(number, 2.0**number) for number in range(16)] + [route(16, 4.1)], {})
    assert len(shapes) == 16
    (together,) = (shape for shape in shapes.values() if len(shape.endpoints) == 2)
    assert together.endpoints == {endpoint(2), endpoint(16)}
    assert together.weight == round(8.1 * 1e6 / 2**15)


def test_a_shape_whose_rate_changes_keeps_its_place_and_a_new_one_gets_an_empty_place() -> None:
    places = {endpoint(0): {3}, endpoint(1): {3}, endpoint(2): {0}}
    shapes = divide_copies([route(0, 9.0), route(1, 9.0), route(2, 1.0), route(3, 5.0)], places)
    assert {place: shape.endpoints for place, shape in shapes.items()} == {
        3: {endpoint(0), endpoint(1)}, 0: {endpoint(2)}, 1: {endpoint(3)},
    }  # fmt: skip
