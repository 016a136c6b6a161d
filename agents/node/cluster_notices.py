"""Reads from the node's own object what its cluster is about to do with it: drain it, or take the machine away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from agents.host import clocks
from agents.kubernetes.api import ApiAway, Object
from agents.kubernetes.following import Follower

# Taints of those who take machines away; none says when, but all of them wait for budgets of disruption.
TAKES_AWAY = (
    "karpenter.sh/disrupted",
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
)
NOTICE = timedelta(minutes=10)  # after which the cluster autoscaler, too, ends a node whatever runs there
NEAR = timedelta(days=1)  # between now and the time of a taint that is believed
FIRST_LOOK_SECONDS = 5.0


class ClusterNotices:
    """What the cluster says of this node, as last known: while the API server is away, nothing new is due."""

    def __init__(self, nodes: Follower, node: str, date: Callable[[], datetime] = clocks.date) -> None:
        self._node = node
        self._date = date
        self._nodes = nodes
        self._changed = threading.Event()
        self.deadline: datetime | None = None
        self.drained = False
        self._nodes.start(self._changed.set)

    @property
    def away(self) -> str:
        return self._nodes.away

    def watch(self, stopping: threading.Event, on_change: Callable[[], None]) -> None:
        """Looks after each change of the node until `stopping` is set."""
        while not stopping.is_set():
            if self._changed.wait(1.0):
                self._changed.clear()
                if self.look():
                    on_change()
        self._nodes.close()

    def look(self) -> bool:
        """Reads the node; returns whether anything has changed for its copies."""
        self._nodes.wait(lambda _: True, FIRST_LOOK_SECONDS)
        try:
            node = self._nodes.objects().get(self._node) or {}
        except ApiAway:
            return False
        before = (self.deadline, self.drained)
        spec: Object = node.get("spec") or {}
        self.drained = bool(spec.get("unschedulable"))
        self.deadline = self._find_deadline({str(taint.get("key", "")): taint for taint in spec.get("taints") or ()})
        return (self.deadline, self.drained) != before

    def _find_deadline(self, taints: Mapping[str, Object]) -> datetime | None:
        """Returns when the machine goes; one that has no time near now is counted from now, once."""
        found = [taints[key] for key in TAKES_AWAY if key in taints]
        if not found:
            return None
        began = [_read_time(str(taint.get("value", "")) or str(taint.get("timeAdded", ""))) for taint in found]
        now = self._date()
        known = [time for time in began if time is not None and abs(time - now) < NEAR]  # anybody may write a value
        return min(known) + NOTICE if known else self.deadline or now + NOTICE


def _read_time(text: str) -> datetime | None:
    """Returns a time in seconds since 1970, as the cluster autoscaler writes it, or in RFC 3339."""
    try:
        found = datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo else None
