"""Says which closed servers HAProxy may delete: those that no request comes back to.

A request whose connection has failed waits for its next try at no server, though it still points to its last one.
HAProxy of Debian 12 deletes that server all the same and may crash as the request goes on. A wait ends within a second.
"""

from __future__ import annotations

from collections.abc import Mapping

from agents.gateway.haproxy.changes import Place
from agents.gateway.haproxy.parsing import ServerLoad

WAIT_SECONDS = 3.0


class ClosedServers:
    """Since when closed servers of one process of HAProxy have had no request."""

    def __init__(self) -> None:
        self._since: dict[Place, float] = {}

    def note(self, loads: Mapping[Place, ServerLoad], now: float) -> list[Place]:
        """Notes which closed servers have no request now, and returns those that may be deleted."""
        self._since = {
            place: self._since.get(place, now) for place, load in loads.items() if not load.open and not load.queued
        }
        return [place for place, since in self._since.items() if not loads[place].total or now - since >= WAIT_SECONDS]
