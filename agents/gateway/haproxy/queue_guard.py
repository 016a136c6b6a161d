"""Keeps copies of a new kind from requests that wait: HAProxy asks only before the wait whether a request is admitted.

What waits when a service begins to admit less was admitted by what its copies were before. A copy that is new then is
drained until nothing waits, or until HAProxy has answered 503 to all that waited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from agents.gateway.haproxy.changes import Backends, ObservedBackends
from agents.gateway.haproxy.configuration import QUEUE_SECONDS
from agents.gateway.haproxy.parsing import ServerLoad

LONGEST_SECONDS = QUEUE_SECONDS + 1.0


class QueueGuard:
    """The kinds of servers that are new to what may still wait in one process of HAProxy, by backend."""

    def __init__(self) -> None:
        self._since: dict[str, dict[str, float]] = {}
        self.knows = False  # whether it was noted what is new: else anything may wait

    def note(self, kinds: Mapping[str, Collection[str]], now: float) -> None:
        """Notes the kinds, by their keys, that are new in these backends: what waits there does not count with them."""
        self.knows = True
        for backend, keys in kinds.items():
            self._since.setdefault(backend, {}).update(dict.fromkeys(keys, now))

    def settle(self, loads: Mapping[tuple[str, str], ServerLoad], now: float) -> None:
        """Forgets the kinds that are new to nothing that waits any more."""
        waiting = {backend for (backend, _), load in loads.items() if load.queued}
        recent = {
            backend: {key: since for key, since in keys.items() if now - since < LONGEST_SECONDS}
            for backend, keys in self._since.items()
            if backend in waiting
        }
        self._since = {backend: keys for backend, keys in recent.items() if keys}

    def has_any(self) -> bool:
        return bool(self._since)

    def hold(self, wanted: Backends, current: ObservedBackends, keys: Mapping[str, str]) -> Backends:
        """Returns what is wanted now: where something waits, servers of a new kind that get no requests yet stay
        drained. `keys` are the kinds of servers by name."""
        held = {}
        for backend, kinds in self._since.items():
            if backend in wanted:
                open_now = {name for name, state in current.get(backend, {}).items() if state.takes_requests}
                held[backend] = {
                    name: server
                    if name in open_now or keys.get(name) not in kinds
                    else replace(server, weight=0, drained=True)
                    for name, server in wanted[backend].items()
                }
        return {**wanted, **held}
