"""Decides what to write next of a service's routes, from what is there alone: a gateway may be killed at any moment.

New copies first have their slices, then a backend without weight, then weight; copies that leave first lose weight or
their slice, then the rest. In between the Gateway gets time to learn it. So no backend with weight is ever empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents.gateway.cluster.objects import (
    BACKEND,
    ROUTE,
    SLICE,
    ObjectKind,
    RouteSettings,
    has,
    write_backend,
    write_route,
    write_slice,
)
from agents.gateway.cluster.reading import SeenObjects, read_weights
from agents.gateway.cluster.shapes import Shapes
from agents.kubernetes.api import Object


@dataclass(frozen=True, slots=True)
class RouteStep:
    """What to write now; where that is nothing, and it is not `in_force`, the Gateway is awaited."""

    puts: Sequence[tuple[ObjectKind, Object]] = ()
    deletes: Sequence[tuple[ObjectKind, Object]] = ()
    in_force: bool = False


def choose_step(
    settings: RouteSettings, service: str, shapes: Shapes | None, seen: SeenObjects, settled: bool
) -> RouteStep:
    """Returns the next step to these shapes (None: the service is gone). `settled`: the Gateway has what is there."""
    if shapes is None:
        return _remove_service(seen, settled)
    made = _write_missing(settings, service, shapes, seen)
    if made:
        return RouteStep(made)
    weights = {place: shape.weight for place, shape in shapes.items()}
    route = write_route(settings, service, weights)
    if seen.route is None:
        return RouteStep([(ROUTE, route)])  # nobody is sent there yet
    listed = read_weights(settings, service, seen.route)
    if weights.keys() - listed.keys():
        waiting = dict.fromkeys(weights, 0) | listed
        return RouteStep([(ROUTE, write_route(settings, service, waiting))])
    if not settled:
        return RouteStep()
    wanted = {(place, endpoint) for place, shape in shapes.items() for endpoint in shape.endpoints}
    leaving = [(SLICE, found) for key, found in seen.slices.items() if key not in wanted]
    going_on = [(SLICE, found) for (place, endpoint), found in seen.slices.items()
                if place in shapes and (place, endpoint) not in wanted]  # fmt: skip
    changed = [] if has(seen.route["spec"], route["spec"]) else [(ROUTE, route)]
    if changed or going_on:
        return RouteStep(changed, going_on)
    emptied = [(BACKEND, found) for place, found in seen.backends.items() if place not in shapes]
    return RouteStep((), [*leaving, *emptied, *((SLICE, found) for found in seen.unreadable)], in_force=True)


def _write_missing(
    settings: RouteSettings, service: str, shapes: Shapes, seen: SeenObjects
) -> list[tuple[ObjectKind, Object]]:
    """Returns Services and slices that are not there, or that somebody has changed."""
    made: list[tuple[ObjectKind, Object]] = []
    for place, shape in shapes.items():
        backend = write_backend(settings, service, place)
        if not has(seen.backends.get(place), {"spec": backend["spec"]}):
            made.append((BACKEND, backend))
        for endpoint in sorted(shape.endpoints):
            wanted, found = write_slice(settings, service, place, endpoint), seen.slices.get((place, endpoint))
            if not has(found, {key: wanted[key] for key in ("endpoints", "ports")}):
                made.append((SLICE, wanted))
    return made


def _remove_service(seen: SeenObjects, settled: bool) -> RouteStep:
    if seen.route is not None:
        return RouteStep((), [(ROUTE, seen.route)])
    if not settled:
        return RouteStep()
    rest = [*((SLICE, found) for found in (*seen.slices.values(), *seen.unreadable))]
    return RouteStep((), [*rest, *((BACKEND, found) for found in seen.backends.values())], in_force=True)
