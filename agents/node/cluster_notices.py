"""Reads from the node's own object what its cluster is about to do with it: drain it, or take the machine away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

from agents.host import clocks
from agents.kubernetes.api import ApiAway, Object
from agents.kubernetes.following import Follower

# Taints of those who take machines away, and how long after them the machine goes; none says when. The first two wait
# for budgets of disruption, and the autoscaler ends a node after that time whatever runs there; clouds do not wait.
TAKES_AWAY = {
    "karpenter.sh/disrupted": timedelta(minutes=10),
    "ToBeDeletedByClusterAutoscaler": timedelta(minutes=10),
    "aws-node-termination-handler/spot-itn": timedelta(minutes=2),
    "cloud.google.com/impending-node-termination": timedelta(seconds=30),
}
NEAR = timedelta(days=1)  # between now and the time of a taint that is believed
FIRST_LOOK_SECONDS = 5.0


SPOT = ("karpenter.sh/capacity-type", "spot")  # a label of nodes that a cloud may take: Karpenter's taint may mean that
SPOT_NOTICE = timedelta(minutes=2)


class ClusterNotices:
    """What the cluster says of this node, as last known: while the API server is away, nothing new is due."""

    def __init__(self, nodes: Follower, node: str, date: Callable[[], datetime] = clocks.date) -> None:
        self._node = node
        self._date = date
        self._nodes = nodes
        self._changed = threading.Event()
        self._seen: dict[str, datetime] = {}  # since when, by taint
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
        key, value = SPOT
        is_spot = ((node.get("metadata") or {}).get("labels") or {}).get(key) == value
        taints = {str(taint.get("key", "")): taint for taint in spec.get("taints") or ()}
        self.deadline = self._find_deadline(taints, SPOT_NOTICE if is_spot else timedelta.max)
        return (self.deadline, self.drained) != before

    def _find_deadline(self, taints: Mapping[str, Object], longest: timedelta) -> datetime | None:
        """Returns when the machine goes; a taint that has no time near now is counted from when it was first seen."""
        now, found = self._date(), {key: taints[key] for key in TAKES_AWAY if key in taints}
        self._seen = {key: self._seen.get(key, now) for key in found}
        began = {key: _read_time(taint, "value") or _read_time(taint, "timeAdded") for key, taint in found.items()}
        near = {key: time for key, time in began.items() if time is not None and abs(time - now) < NEAR}
        since = self._seen | near  # anybody may write a value
        return min((time + min(TAKES_AWAY[key], longest) for key, time in since.items()), default=None)


def _read_time(taint: Object, field: str) -> datetime | None:
    """Returns a time in seconds since 1970, as the cluster autoscaler writes it, or in RFC 3339."""
    text = str(taint.get(field, ""))
    try:
        found = datetime.fromtimestamp(int(text), UTC) if text.isdecimal() else datetime.fromisoformat(text)
    except (ValueError, OverflowError, OSError):
        return None
    return found if found.tzinfo else None
