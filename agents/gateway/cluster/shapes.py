"""Divides a service's copies into shapes, each of copies with one planned rate: a Gateway weighs shapes, not copies.

Every shape has a place, which is a Service of its own. A place keeps its copies if it can: a copy that changes its
place is in both for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agents.gateway.wire import RouteSpec

MOST_SHAPES = 16  # backends of a rule of an HTTPRoute
LARGEST_WEIGHT = 1_000_000  # of a backend
PER_RATE = 1000  # weights are whole numbers: of 0.001 a second at least


@dataclass(frozen=True, slots=True, order=True)
class CopyEndpoint:
    """A copy where requests reach it."""

    copy: str
    address: str


@dataclass(frozen=True, slots=True)
class RoutedShape:
    """Copies among which requests are spread evenly, and their weight together."""

    weight: int
    endpoints: frozenset[CopyEndpoint]


Shapes = Mapping[int, RoutedShape]  # by place
NO_COPY: Shapes = {0: RoutedShape(1, frozenset())}  # a Gateway answers 503


def divide_copies(routes: Iterable[RouteSpec], places: Mapping[CopyEndpoint, Collection[int]]) -> Shapes:
    """Returns the shapes of the copies that are not drained. `places` says where each copy is now."""
    groups = _merge_groups(_group_by_rate(routes))
    if not groups:
        return NO_COPY
    endpoints = [frozenset(CopyEndpoint(route.copy, route.address) for route in group) for group in groups]
    rates = [sum(route.weight for route in group) for group in groups]
    scale = min(PER_RATE, LARGEST_WEIGHT / max(rates))
    return {
        place: RoutedShape(max(1, round(rates[number] * scale)), endpoints[number])
        for number, place in enumerate(_choose_places(endpoints, places))
    }


def _group_by_rate(routes: Iterable[RouteSpec]) -> list[list[RouteSpec]]:
    groups: dict[float, list[RouteSpec]] = {}
    for route in routes:
        if not route.drained:
            groups.setdefault(round(route.weight, 6), []).append(route)
    return [groups[rate] for rate in sorted(groups)]


def _merge_groups(groups: list[list[RouteSpec]]) -> list[list[RouteSpec]]:
    """Returns no more groups than a rule has backends: those are merged whose copies' rates differ the least."""
    while len(groups) > MOST_SHAPES:
        means = [sum(route.weight for route in group) / len(group) for group in groups]
        nearest = min(range(len(groups) - 1), key=lambda at: means[at + 1] / means[at])
        groups[nearest : nearest + 2] = [groups[nearest] + groups[nearest + 1]]
    return groups


def _choose_places(
    groups: Sequence[frozenset[CopyEndpoint]], places: Mapping[CopyEndpoint, Collection[int]]
) -> list[int]:
    """Returns a place for each group: where most of its copies are, else one that has none."""
    shared: dict[tuple[int, int], int] = {}
    for number, group in enumerate(groups):
        for endpoint in group:
            for place in places.get(endpoint, ()):
                shared[number, place] = shared.get((number, place), 0) + 1
    chosen: dict[int, int] = {}
    for number, place in sorted(shared, key=lambda pair: (-shared[pair], pair)):
        if number not in chosen and place not in chosen.values():
            chosen[number] = place
    used = {place for found in places.values() for place in found}
    free = sorted(set(range(MOST_SHAPES)) - set(chosen.values()), key=lambda place: (place in used, place))
    return [chosen[number] if number in chosen else free.pop(0) for number in range(len(groups))]
