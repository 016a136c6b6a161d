"""Tells a service's copies apart by what they admit, and finds the kinds that are too many for HAProxy to ask for.

While kinds change, HAProxy asks for those of before and of after, so a service has at most half as many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from agents.gateway.wire import RouteSpec

MOST_KINDS = 3
Kind: TypeAlias = tuple[str, ...] | None  # the rules of a copy; None: not known
SourcedRoute: TypeAlias = tuple[str, RouteSpec]
TOO_MANY = (
    "{} has copies of more than {} kinds, which differ in the paths that they admit; one of least weight is left out"
)


def find_crowding(
    routes: Iterable[SourcedRoute], kind_of: Callable[[str, RouteSpec], Kind]
) -> dict[str, frozenset[Kind]]:
    """Returns the kinds of copies that are left out, by service: of too many, those with the least weight."""
    weights: dict[str, dict[Kind, float]] = {}
    for source, route in routes:
        if not route.drained:
            of_service, kind = weights.setdefault(route.service, {}), kind_of(source, route)
            of_service[kind] = of_service.get(kind, 0.0) + route.weight
    return {
        service: frozenset(sorted(found, key=lambda kind: (-found[kind], kind or ()))[MOST_KINDS:])
        for service, found in weights.items()
        if len(found) > MOST_KINDS
    }


def explain_crowding(service: str) -> str:
    """Returns why a copy gets no requests."""
    return TOO_MANY.format(service, MOST_KINDS)
