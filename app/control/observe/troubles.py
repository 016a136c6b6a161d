"""Watches for what befalls a fleet between two steps: notices of reclaim, falls, lost nodes and GPUs that ail."""

from __future__ import annotations

from collections.abc import Collection

from app.control.domain.desired import FleetStatus
from app.control.domain.events import Reason


class TroubleWatch:
    """The troubles at the last look; the notices of reclaim and the services with a copy that fell, if not answered."""

    def __init__(self) -> None:
        self._notices: frozenset[tuple[str, float]] = frozenset()  # node and deadline
        self._answered: frozenset[tuple[str, float]] = frozenset()
        self._fallen: frozenset[str] = frozenset()  # services
        self._out: tuple[frozenset[tuple[str, int]], frozenset[str]] = (frozenset(), frozenset())  # GPUs, nodes

    def look(self, status: FleetStatus) -> Reason | None:
        """Returns why a cycle is wanted: something is other than at the last look."""
        notices, out = frozenset(status.reclaimed_at.items()), (status.ailing, status.lost)
        found = Reason.RECLAIM_NOTICE if notices != self._notices else Reason.NODE_LOST if out != self._out else None
        self._notices, self._out = notices, out
        return found

    def take_notices(self) -> frozenset[tuple[str, float]]:
        """Returns the notices that came since the last call, which are answered with that."""
        found, self._answered = self._notices - self._answered, self._notices
        return found

    def note_falls(self, services: Collection[str]) -> None:
        self._fallen |= frozenset(services)

    def take_falls(self) -> frozenset[str]:
        """Returns the services of which a copy fell since the last call."""
        found, self._fallen = self._fallen, frozenset()
        return found

    def give_back(self, notices: frozenset[tuple[str, float]], fallen: frozenset[str]) -> None:
        """Leaves what could not be answered to the next call."""
        self._answered -= notices
        self._fallen |= fallen
