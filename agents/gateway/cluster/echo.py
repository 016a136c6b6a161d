"""Proves that the Gateway has read all that was written before: by a route that no request takes.

A Gateway says which generation of a route it has read, and nothing of slices. It reads those by another watch. After
the API server was away that watch may be seconds behind, and while the Gateway's controller is away it stands still.
So each echo gives a route of ours a Service and a slice that are new. A Gateway that answers for the route's new
generation is there. One that says whether backends have endpoints, as Envoy Gateway does, finds this slice only after
all slices that are older.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from enum import Enum

from agents.gateway.cluster.objects import (
    BACKEND,
    BACKEND_LABEL,
    ECHO,
    ROUTE,
    SLICE,
    ObjectKind,
    ParentGateway,
    RouteSettings,
    has,
    name_backend,
    name_echo_route,
    write_backend,
    write_echo_route,
    write_slice,
)
from agents.gateway.cluster.reading import RouteVerdict, SeenObjects, judge_route, list_backends, misses_endpoints
from agents.gateway.cluster.route_objects import ForeignObject, RouteObjects
from agents.gateway.cluster.shapes import CopyEndpoint
from agents.kubernetes.api import ApiRefused, Object

log = logging.getLogger(__name__)
_UNREACHED = CopyEndpoint("echo", "192.0.2.1:9")  # of a network for documentation: nothing is there


class EchoVerdict(Enum):
    """What has become of the echo that is under way."""

    ANSWERED = "answered"
    AWAITED = "awaited"
    LOST = "lost"


class Echo:
    """Numbered echoes, one after the other; many services may wait for one.

    One that cannot be written counts as answered: no object of others and no quota may hold back what serves.
    """

    def __init__(self, objects: RouteObjects, settings: RouteSettings) -> None:
        self._objects, self._settings = objects, settings
        self._asked = self._begun = 0
        self._backend = ""  # of the newest echo
        self.heard = 0  # the newest that the Gateway has answered
        self._trouble = ""  # why none can begin

    def ask(self) -> int:
        """Returns the number of an echo that begins after all that has been written so far."""
        self._asked = self._begun + 1
        return self._asked

    def look(self, echoes: Sequence[SeenObjects]) -> None:
        """Listens for the echo that is under way, else removes what is left of others and begins the next."""
        if self.heard < self._begun:
            verdict = judge_echo(echoes, self._backend, self._settings.parent)
            if verdict is EchoVerdict.AWAITED:
                return
            if verdict is EchoVerdict.ANSWERED:
                self.heard = self._begun
            self._begun = self.heard
        try:
            for kind, found in list_leftovers(echoes, self._backend):
                self._objects.delete(kind, found)
            if self._begun < self._asked:
                self._begin()
                self._say("")
        except (ApiRefused, ForeignObject) as error:
            self._backend, self.heard = "", self._asked
            self._begun = self._asked
            self._say(str(error))

    def _begin(self) -> None:
        name = ECHO + secrets.token_hex(8)
        self._backend = name_backend(self._settings, name, 0)
        self._objects.put(BACKEND, write_backend(self._settings, name, 0))
        self._objects.put(SLICE, write_slice(self._settings, name, 0, _UNREACHED))
        route = write_echo_route(self._settings, name)
        self._objects.put(ROUTE, route)
        if has(self._objects.read(ROUTE).get(name_echo_route(self._settings)), {"spec": route["spec"]}):
            self._begun += 1  # else somebody else has written between, and it begins again

    def _say(self, trouble: str) -> None:
        if trouble and trouble != self._trouble:
            log.error("the Gateway is not asked what it has read, and only the settling time is waited: %s", trouble)
        self._trouble = trouble


def judge_echo(echoes: Sequence[SeenObjects], backend: str, parent: ParentGateway) -> EchoVerdict:
    """Returns whether the Gateway has answered the echo of this backend."""
    route = next((found.route for found in echoes if found.route is not None), None)
    if route is None or list_backends(route) != [backend]:
        return EchoVerdict.LOST  # somebody has deleted it, or written it
    verdict, _ = judge_route(route, parent)
    if verdict is RouteVerdict.REFUSED:  # a Gateway that refuses all our routes sends nothing to any copy
        return EchoVerdict.ANSWERED
    is_read = verdict is RouteVerdict.TAKEN and not misses_endpoints(route, parent)
    return EchoVerdict.ANSWERED if is_read else EchoVerdict.AWAITED


def list_leftovers(echoes: Sequence[SeenObjects], backend: str) -> list[tuple[ObjectKind, Object]]:
    """Returns the slices and Services of all echoes but that of this backend."""
    slices = [each for found in echoes for each in found.slices.values()]
    backends = [each for found in echoes for each in found.backends.values()]
    return [
        *((SLICE, each) for each in slices if each["metadata"]["labels"].get(BACKEND_LABEL) != backend),
        *((BACKEND, each) for each in backends if each["metadata"]["name"] != backend),
    ]
