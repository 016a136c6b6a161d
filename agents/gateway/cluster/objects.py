"""Writes the objects of a service's routes: an HTTPRoute, and of each shape a Service and its slices.

The Services select no pods. What a copy's address is, and whether it is ready, draining or fenced off, has been decided
by the control plane's endpoints; a selector would decide it a second time, and knows no copy that is not a pod. Each
copy has an EndpointSlice of its own, because all endpoints of a slice have one port, and copies of a node do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents.gateway.cluster.shapes import CopyEndpoint
from agents.gateway.desired import split_address
from agents.kubernetes.api import Object
from agents.kubernetes.names import COPY, DOMAIN

OWNER = f"{DOMAIN}/gateway"  # a label: the gateway that writes the object, and alone may
PLACE = f"{DOMAIN}/shape"  # a label of Services and slices
SERVICE = f"{DOMAIN}/service"  # an annotation: tenant/name
ECHO = "/echo/"  # of echoes, in place of a tenant and its service: no service begins so
BACKEND_LABEL = "kubernetes.io/service-name"  # of slices
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
    """Returns a route of requests that have a secret header, so that it gets none."""
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
        BACKEND_LABEL: name_backend(settings, service, place),
        "endpointslice.kubernetes.io/managed-by": DOMAIN,
        "service.kubernetes.io/headless": "",  # else the proxies of all nodes would read it
    }
    made["metadata"]["annotations"] |= {COPY: endpoint.copy, f"{DOMAIN}/address": endpoint.address}
    return made | {
        "addressType": "IPv6" if ":" in host else "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "serves", "port": port, "protocol": "TCP"}],
    }


def has(found: Any, wanted: Any) -> bool:
    """Returns whether an object has all that is wanted of it; the API server adds what it takes by default."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(has(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(has, found, wanted))
    return bool(found == wanted)


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


def _hash(kind: str, *words: str) -> str:
    """Returns a name that may begin a Service's: a letter, and then a hash of the words."""
    return kind + hashlib.sha256("\n".join(words).encode()).hexdigest()[:20]
