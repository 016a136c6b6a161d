"""Proves that the Gateway has read all that was written before: by a route that no request takes.

A Gateway says which generation of a route it has read, and nothing of slices. It reads those by another watch. After
the API server was away that watch may be seconds behind, and while the Gateway's controller is away it stands still.
So each echo gives a route of ours a Service and a slice that are new. A Gateway that answers for the route's new
generation is there. One that says whether backends have endpoints, as Envoy Gateway does, finds this slice only after
all slices that are older.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from agents.gateway.cluster.objects import (
    BACKEND,
    ECHO,
    ROUTE,
    SLICE,
    RouteSettings,
    RouteVerdict,
    SeenObjects,
    has,
    judge_route,
    misses_endpoints,
    name_echo_route,
    write_backend,
    write_echo_route,
    write_slice,
)
from agents.gateway.cluster.shapes import CopyEndpoint
from agents.gateway.cluster.writing import RouteObjects

_UNREACHED = CopyEndpoint("echo", "192.0.2.1:9")  # of a network for documentation: nothing is there


class Echo:
    """Numbered echoes, one after the other; many services may wait for one."""

    def __init__(self, objects: RouteObjects, settings: RouteSettings) -> None:
        self._objects, self._settings = objects, settings
        self._asked = self._begun = 0
        self._service = ""  # in whose place the newest echo stands
        self.heard = 0  # the newest that the Gateway has answered

    def ask(self) -> int:
        """Returns the number of an echo that begins after all that has been written so far."""
        self._asked = self._begun + 1
        return self._asked

    def look(self, echoes: Mapping[str, SeenObjects]) -> None:
        """Listens for the echo that is under way, else removes what is left of others and begins the next."""
        if self.heard < self._begun and not self._listen():
            return
        self._remove({service: found for service, found in echoes.items() if service != self._service})
        if self._begun < self._asked:
            self._begin()

    def _begin(self) -> None:
        self._service = ECHO + secrets.token_hex(8)
        self._objects.put(BACKEND, write_backend(self._settings, self._service, 0))
        self._objects.put(SLICE, write_slice(self._settings, self._service, 0, _UNREACHED))
        route = write_echo_route(self._settings, self._service)
        self._objects.put(ROUTE, route)
        if has(self._objects.read(ROUTE).get(route["metadata"]["name"]), {"spec": route["spec"]}):
            self._begun += 1  # else somebody else has written between, and it begins again

    def _listen(self) -> bool:
        route = self._objects.read(ROUTE).get(name_echo_route(self._settings))
        if route is None:  # somebody has deleted it
            self._begun = self.heard
            return True
        verdict, _ = judge_route(route, self._settings.parent)
        is_heard = verdict is RouteVerdict.TAKEN and not misses_endpoints(route, self._settings.parent)
        if is_heard or verdict is RouteVerdict.REFUSED:  # a Gateway that refuses all our routes sends nothing anywhere
            self.heard = self._begun
        return self.heard == self._begun

    def _remove(self, echoes: Mapping[str, SeenObjects]) -> None:
        for found in echoes.values():
            for each in found.slices.values():
                self._objects.delete(SLICE, each)
            for each in found.backends.values():
                self._objects.delete(BACKEND, each)
