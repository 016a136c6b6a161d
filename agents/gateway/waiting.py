"""Keeps copies of a new kind from requests that wait: HAProxy asks whether a request is admitted before it waits, only.

What waits when a service begins to admit less was admitted by what its copies were before. A copy that is new then is
drained until nothing waits, or until HAProxy has answered 503 to all that waited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from agents.gateway.changes import Backends, ObservedBackends
from agents.gateway.parsing import ServerLoad

LONGEST_SECONDS = 11.0  # `timeout queue` of the backends, and a second


class Narrowed:
    """The backends that admit less than what may still wait in them, by process of HAProxy."""

    def __init__(self) -> None:
        self._since: dict[tuple[int, str], float] = {}

    def note(self, pid: int, backends: Iterable[str], now: float) -> None:
        """Notes that these backends admit less from now on."""
        self._since |= {(pid, backend): now for backend in backends}

    def settle(self, pid: int, loads: Mapping[tuple[str, str], ServerLoad], now: float) -> None:
        """Forgets the process's backends in which nothing waits any more that was admitted before."""
        waiting = {backend for (backend, _), load in loads.items() if load.queued}
        self._since = {
            (each, backend): since
            for (each, backend), since in self._since.items()
            if each != pid or (backend in waiting and now - since < LONGEST_SECONDS)
        }

    def forget_gone(self, pids: Collection[int]) -> None:
        """Forgets processes that have ended."""
        self._since = {place: since for place, since in self._since.items() if place[0] in pids}

    def has(self, pid: int) -> bool:
        return any(each == pid for each, _ in self._since)

    def hold(self, pid: int, wanted: Backends, current: ObservedBackends) -> Backends:
        """Returns what is wanted now: where something waits, servers that get no requests yet stay drained."""
        held = {}
        for each, backend in self._since:
            if each == pid and backend in wanted:
                open_now = {name for name, state in current.get(backend, {}).items() if state.takes_requests}
                held[backend] = {
                    name: server if name in open_now else replace(server, weight=0, drained=True)
                    for name, server in wanted[backend].items()
                }
        return {**wanted, **held}
