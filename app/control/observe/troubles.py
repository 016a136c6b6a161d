"""Watches for what befalls a fleet between two steps: notices of reclaim, lost nodes and GPUs that ail."""

from __future__ import annotations

from app.control.domain.desired import FleetStatus
from app.control.domain.events import Reason


class TroubleWatch:
    """The troubles at the last look, and the notices of reclaim that nobody has answered."""

    def __init__(self) -> None:
        self._notices: frozenset[tuple[str, float]] = frozenset()  # node and deadline
        self._answered: frozenset[tuple[str, float]] = frozenset()
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

    def give_back(self, notices: frozenset[tuple[str, float]]) -> None:
        """Leaves notices that could not be answered to the next call."""
        self._answered -= notices
