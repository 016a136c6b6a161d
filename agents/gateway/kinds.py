"""Tells a service's copies apart by what they admit, and finds the kinds that are too many for HAProxy to ask for.

While kinds change, HAProxy asks for those of before and of after, so a service has at most half as many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from agents.gateway.wire import RouteSpec

MOST_KINDS = 4  # two nodes that replace their copies at once have so many
AdmittedRules: TypeAlias = tuple[str, ...] | None  # the rules of a copy; None: not known
SourcedRoute: TypeAlias = tuple[str, RouteSpec]
TOO_MANY = (
    "{} has copies of more than {} kinds, which differ in the paths that they admit; each node's first kind goes before"
    " any node's second, and this one is left out"
)


def find_crowding(
    routes: Iterable[SourcedRoute],
    find_kind: Callable[[str, RouteSpec], AdmittedRules],
    known: Mapping[str, Sequence[AdmittedRules]],
) -> dict[str, frozenset[AdmittedRules]]:
    """Returns the kinds of copies that are left out, by service. `known` are those in force before, the oldest first.

    A node writes the rules of its copies. So the second kind of any source comes after the first kind of every source,
    its first being that of the most weight; and then come kinds that fewer sources have, and newer ones.
    """
    weights: dict[str, dict[str, dict[AdmittedRules, float]]] = {}
    for source, route in routes:
        if not route.drained:
            of_source, kind = weights.setdefault(route.service, {}).setdefault(source, {}), find_kind(source, route)
            of_source[kind] = of_source.get(kind, 0.0) + route.weight
    ordered = {service: _order(found.values(), known.get(service, ())) for service, found in weights.items()}
    return {service: frozenset(kinds[MOST_KINDS:]) for service, kinds in ordered.items() if len(kinds) > MOST_KINDS}


def _order(sources: Iterable[Mapping[AdmittedRules, float]], known: Sequence[AdmittedRules]) -> list[AdmittedRules]:
    """Returns the kinds of all sources, each of which has weights of its own: first what is left out last."""
    places: dict[AdmittedRules, list[int]] = {}
    for weights in sources:
        for place, kind in enumerate(sorted(weights, key=lambda kind: -weights[kind])):
            places.setdefault(kind, []).append(place)
    ages = _ages(known)
    return sorted(places, key=lambda kind: (min(places[kind]), -len(places[kind]), ages[kind]))


def _ages(known: Sequence[AdmittedRules]) -> Mapping[AdmittedRules, int]:
    """Returns a number for every kind, which is less for older ones, and the same for all new ones."""
    return defaultdict(lambda: len(known), {kind: age for age, kind in enumerate(known)})


def list_kinds(
    routes: Iterable[SourcedRoute],
    find_kind: Callable[[str, RouteSpec], AdmittedRules],
    known: Mapping[str, Sequence[AdmittedRules]],
) -> dict[str, list[AdmittedRules]]:
    """Returns the kinds of copies by service, first those that were known before, in the same order."""
    found: dict[str, dict[AdmittedRules, None]] = {}
    for source, route in routes:
        if not route.drained:
            found.setdefault(route.service, {})[find_kind(source, route)] = None
    return {service: sorted(kinds, key=_ages(known.get(service, ())).__getitem__) for service, kinds in found.items()}
