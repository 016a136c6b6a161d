"""Reads the objects of a gateway's routes, and what the Gateway says of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from agents.gateway.cluster.objects import (
    BACKEND,
    ECHO,
    PLACE,
    ROUTE,
    SERVICE,
    SLICE,
    ObjectKind,
    ParentGateway,
    RouteSettings,
    name_backend,
)
from agents.gateway.cluster.shapes import MOST_SHAPES, CopyEndpoint
from agents.kubernetes.api import Object
from agents.kubernetes.names import COPY, DOMAIN


@dataclass(slots=True)
class SeenObjects:
    """The objects of one service that are there."""

    route: Object | None = None
    backends: dict[int, Object] = field(default_factory=dict)
    slices: dict[tuple[int, CopyEndpoint], Object] = field(default_factory=dict)
    unreadable: list[Object] = field(default_factory=list)  # slices of ours that somebody has changed

    def list_places(self) -> dict[CopyEndpoint, set[int]]:
        places: dict[CopyEndpoint, set[int]] = {}
        for place, endpoint in self.slices:
            places.setdefault(endpoint, set()).add(place)
        return places


class RouteVerdict(Enum):
    """What the Gateway says of a route as it is now."""

    TAKEN = "taken"
    AWAITED = "awaited"
    REFUSED = "refused"


def read_objects(found: Mapping[ObjectKind, Mapping[str, Object]]) -> tuple[dict[str, SeenObjects], list[SeenObjects]]:
    """Returns the objects by service, and those of each echo."""
    seen: dict[str, SeenObjects] = {}
    for kind, objects in found.items():
        for each in objects.values():
            _read(kind, each, seen.setdefault(_annotation(each, SERVICE), SeenObjects()))
    echoes = [seen.pop(name) for name in list(seen) if name.startswith(ECHO)]
    return seen, echoes


def read_weights(settings: RouteSettings, service: str, route: Object) -> dict[int, int]:
    """Returns the weights of the places that a route lists."""
    places = {name_backend(settings, service, place): place for place in range(MOST_SHAPES)}
    return {
        places[backend["name"]]: int(backend.get("weight", 1))
        for backend in _list_references(route)
        if backend.get("name") in places
    }


def list_backends(route: Object) -> list[str]:
    return [str(backend.get("name", "")) for backend in _list_references(route)]


def judge_route(route: Object, parent: ParentGateway) -> tuple[RouteVerdict, str]:
    """Returns what all controllers of the Gateway say of the newest generation of a route, and why."""
    generation = int(route["metadata"].get("generation") or 0)
    own = _list_own_parents(route, parent)
    verdict = RouteVerdict.TAKEN if own else RouteVerdict.AWAITED
    for each in own:
        conditions = {str(found.get("type")): found for found in each.get("conditions") or ()}
        for name in ("Accepted", "ResolvedRefs"):
            found = conditions.get(name, {})
            is_newest = int(found.get("observedGeneration") or 0) >= generation
            if is_newest and name == "Accepted" and found.get("status") == "False":
                why = f"{found.get('reason', '')}: {found.get('message', '')}"
                return RouteVerdict.REFUSED, f"the Gateway does not accept {_say(ROUTE, route)}: {why}"
            if not is_newest or found.get("status") != "True":
                verdict = RouteVerdict.AWAITED
    return verdict, ""


def misses_endpoints(route: Object, parent: ParentGateway) -> bool:
    """Returns whether a controller says that it knows no endpoint of a backend; many say nothing of that."""
    return any(
        found.get("type") == "BackendsAvailable" and found.get("status") == "False"
        for each in _list_own_parents(route, parent)
        for found in each.get("conditions") or ()
    )


def _list_references(route: Object) -> list[Object]:
    rules = (route.get("spec") or {}).get("rules") or ()
    return [backend for rule in rules for backend in rule.get("backendRefs") or ()]


def _list_own_parents(route: Object, parent: ParentGateway) -> list[Object]:
    """Returns what each controller of the Gateway says of a route."""
    namespace = str(route["metadata"].get("namespace", ""))
    return [
        each
        for each in (route.get("status") or {}).get("parents") or ()
        if _is_same_parent(each.get("parentRef") or {}, parent, namespace)
    ]


def _read(kind: ObjectKind, found: Object, seen: SeenObjects) -> None:
    place = str((found["metadata"].get("labels") or {}).get(PLACE, ""))
    copy, address = _annotation(found, COPY), _annotation(found, f"{DOMAIN}/address")
    if kind is ROUTE:
        seen.route = found
    elif kind is BACKEND and place.isdigit():
        seen.backends[int(place)] = found
    elif kind is SLICE and place.isdigit() and copy:
        seen.slices[int(place), CopyEndpoint(copy, address)] = found
    else:
        seen.unreadable.append(found)


def _annotation(found: Object, name: str) -> str:
    return str((found["metadata"].get("annotations") or {}).get(name, ""))


def _is_same_parent(found: Object, parent: ParentGateway, namespace: str) -> bool:
    wanted = (parent.namespace, parent.name, parent.section)
    return (found.get("namespace", namespace), found.get("name"), found.get("sectionName", "")) == wanted


def _say(kind: ObjectKind, found: Object) -> str:
    return f"{kind.name} {found['metadata'].get('namespace', '')}/{found['metadata']['name']}"
