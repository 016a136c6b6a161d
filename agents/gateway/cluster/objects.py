"""Writes the objects of a service's routes and reads them: an HTTPRoute, and of each shape a Service and its slices.

The Services select no pods. What a copy's address is, and whether it is ready, draining or fenced off, has been decided
by the control plane's endpoints; a selector would decide it a second time, and knows no copy that is not a pod. Each
copy has an EndpointSlice of its own, because all endpoints of a slice have one port, and copies of a node do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from agents.gateway.cluster.shapes import MOST_SHAPES, CopyEndpoint
from agents.gateway.desired import split_address
from agents.kubernetes.api import Object
from agents.kubernetes.names import COPY, DOMAIN

OWNER = f"{DOMAIN}/gateway"  # a label: the gateway that writes the object, and alone may
PLACE = f"{DOMAIN}/shape"  # a label of Services and slices
SERVICE = f"{DOMAIN}/service"  # an annotation: tenant/name
ECHO = "/echo/"  # in place of a tenant: no service begins so
PORT = 80  # of Services, which only have names for it
GATEWAY_GROUP = "gateway.networking.k8s.io"


@dataclass(frozen=True, slots=True)
class ObjectKind:
    """A kind of objects that a gateway writes."""

    name: str
    version: str
    plural: str

    def path(self, namespace: str, name: str = "") -> str:
        root = "api" if "/" not in self.version else "apis"
        return f"/{root}/{self.version}/namespaces/{namespace}/{self.plural}" + (f"/{name}" if name else "")


ROUTE = ObjectKind("HTTPRoute", f"{GATEWAY_GROUP}/v1", "httproutes")
BACKEND = ObjectKind("Service", "v1", "services")
SLICE = ObjectKind("EndpointSlice", "discovery.k8s.io/v1", "endpointslices")
KINDS = (ROUTE, BACKEND, SLICE)


@dataclass(frozen=True, slots=True)
class ParentGateway:
    """The Gateway whose listeners take the requests."""

    namespace: str
    name: str
    section: str = ""  # the listener; all of them, if empty

    def reference(self) -> Object:
        found = {"group": GATEWAY_GROUP, "kind": "Gateway", "namespace": self.namespace, "name": self.name}
        return {**found, "sectionName": self.section} if self.section else found


@dataclass(frozen=True, slots=True)
class RouteSettings:
    """What all routes of a gateway have in common."""

    gateway: str
    namespace: str
    parent: ParentGateway
    hostnames: tuple[str, ...] = ()

    @property
    def selected(self) -> Mapping[str, str]:
        return {"labelSelector": f"{OWNER}={self.gateway}"}

    def owns(self, found: Object) -> bool:
        return bool((found["metadata"].get("labels") or {}).get(OWNER) == self.gateway)


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


def name_route(settings: RouteSettings, service: str) -> str:
    return f"{settings.gateway}.{service.replace('/', '.')}"


def name_echo_route(settings: RouteSettings) -> str:
    return f"{settings.gateway}.echo"


def name_backend(settings: RouteSettings, service: str, place: int) -> str:
    return f"{_hash('s', settings.gateway, service)}-{place}"


def name_slice(settings: RouteSettings, service: str, place: int, endpoint: CopyEndpoint) -> str:
    return f"{name_backend(settings, service, place)}-{_hash('c', endpoint.copy, endpoint.address)}"


def write_route(settings: RouteSettings, service: str, weights: Mapping[int, int]) -> Object:
    """Returns a route of http://HOST/TENANT/SERVICE/any/path, of which a copy gets /any/path."""
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": f"/{service}"}}],
        "filters": [
            {
                "type": "URLRewrite",
                "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}},
            }
        ],
        "backendRefs": [_refer(settings, service, place, weight) for place, weight in sorted(weights.items())],
        "timeouts": {"request": "0s"},  # an answer may stream for long; Envoy would end it after 15 s
    }
    return _write_rule(settings, service, name_route(settings, service), rule)


def write_echo_route(settings: RouteSettings, echo: str) -> Object:
    """Returns a route of requests that have a header which nobody knows."""
    path = {"type": "Exact", "value": f"/{settings.gateway}.echo"}
    rule = {
        "matches": [{"path": path, "headers": [{"name": "gpuwright-echo", "value": echo}]}],
        "backendRefs": [_refer(settings, echo, 0, 1)],  # with a weight: Envoy Gateway skips those without one
    }
    return _write_rule(settings, echo, name_echo_route(settings), rule)


def write_backend(settings: RouteSettings, service: str, place: int) -> Object:
    """Returns a Service without a virtual address: what a Gateway reads of it are its slices."""
    made = _write(BACKEND, settings, service, name_backend(settings, service, place))
    made["metadata"]["labels"][PLACE] = str(place)
    return made | {"spec": {"clusterIP": "None", "ports": [{"name": "serves", "port": PORT, "protocol": "TCP"}]}}


def write_slice(settings: RouteSettings, service: str, place: int, endpoint: CopyEndpoint) -> Object:
    host, port = split_address(endpoint.address)
    made = _write(SLICE, settings, service, name_slice(settings, service, place, endpoint))
    made["metadata"]["labels"] |= {
        PLACE: str(place),
        "kubernetes.io/service-name": name_backend(settings, service, place),
        "endpointslice.kubernetes.io/managed-by": DOMAIN,
        "service.kubernetes.io/headless": "",  # else the proxies of all nodes would read it
    }
    made["metadata"]["annotations"] |= {COPY: endpoint.copy, f"{DOMAIN}/address": endpoint.address}
    return made | {
        "addressType": "IPv6" if ":" in host else "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "serves", "port": port, "protocol": "TCP"}],
    }


def read_objects(found: Mapping[ObjectKind, Mapping[str, Object]]) -> dict[str, SeenObjects]:
    """Returns the objects by service."""
    seen: dict[str, SeenObjects] = {}
    for kind, objects in found.items():
        for each in objects.values():
            _read(kind, each, seen.setdefault(_annotation(each, SERVICE), SeenObjects()))
    return seen


def read_weights(settings: RouteSettings, service: str, route: Object) -> dict[int, int]:
    """Returns the weights of the places that a route lists."""
    places = {name_backend(settings, service, place): place for place in range(MOST_SHAPES)}
    rules = (route.get("spec") or {}).get("rules") or ()
    listed = [backend for rule in rules for backend in rule.get("backendRefs") or ()]
    return {
        places[backend["name"]]: int(backend.get("weight", 1)) for backend in listed if backend.get("name") in places
    }


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


def has(found: Any, wanted: Any) -> bool:
    """Returns whether an object has all that is wanted of it; the API server adds what it takes by default."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(has(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(has, found, wanted))
    return bool(found == wanted)


def _list_own_parents(route: Object, parent: ParentGateway) -> list[Object]:
    """Returns what each controller of the Gateway says of a route."""
    namespace = str(route["metadata"].get("namespace", ""))
    return [
        each
        for each in (route.get("status") or {}).get("parents") or ()
        if _is_same_parent(each.get("parentRef") or {}, parent, namespace)
    ]


def _refer(settings: RouteSettings, service: str, place: int, weight: int) -> Object:
    return {
        "group": "",
        "kind": "Service",
        "name": name_backend(settings, service, place),
        "port": PORT,
        "weight": weight,
    }


def _write_rule(settings: RouteSettings, service: str, name: str, rule: Object) -> Object:
    spec: Object = {"parentRefs": [settings.parent.reference()], "rules": [rule]}
    if settings.hostnames:
        spec["hostnames"] = list(settings.hostnames)
    return _write(ROUTE, settings, service, name) | {"spec": spec}


def _write(kind: ObjectKind, settings: RouteSettings, service: str, name: str) -> Object:
    labels = {OWNER: settings.gateway, "app.kubernetes.io/managed-by": "gpuwright"}
    metadata = {"name": name, "namespace": settings.namespace, "labels": labels, "annotations": {SERVICE: service}}
    return {"apiVersion": kind.version, "kind": kind.name, "metadata": metadata}


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


def _hash(kind: str, *words: str) -> str:
    """Returns a name that may begin a Service's: a letter, and then a hash of the words."""
    return kind + hashlib.sha256("\n".join(words).encode()).hexdigest()[:20]


def _say(kind: ObjectKind, found: Object) -> str:
    return f"{kind.name} {found['metadata'].get('namespace', '')}/{found['metadata']['name']}"
