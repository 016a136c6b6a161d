"""Derives the status of nodes, as planning needs it, from their reports and their silence."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import inf

import msgspec

from agents.contract.admitted import AdmittedEntry
from app.control.domain.snapshot import SILENT_SECONDS, NodeState, NodeStatus
from app.manifests.model import Free
from app.nodes.detail import AilingGpu
from app.nodes.devices import MISSING, OTHER_DEVICES
from app.store.fleet.cordons import ALL_GPUS, EMPTYING, RECLAIM, Cordon
from app.store.fleet.planner_reads import ObservedNode, PartitionRequest

REQUEST_HELD = timedelta(hours=1)  # a node's request for another partition, once it asks no longer
ANSWER_SECONDS = 300.0  # before another answer: what the last one changed has to start first
MOST_ANSWERS = 22  # nine tenths of the watts above idle: a request that never ends gives up no whole GPU


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long silence is forgiven: a node that was to be reclaimed by now is lost as soon as it is silent.

    Nodes that are `held`, as many went silent at once, are not lost.
    """

    lost_after_seconds: float
    reclaimed_at: Mapping[str, datetime]
    now: datetime
    held: Collection[str] = ()

    def seconds(self, node: str) -> float:
        """Returns the silence after which the node counts as lost."""
        if node in self.held:
            return inf
        deadline = self.reclaimed_at.get(node)
        is_over = deadline is not None and self.now >= deadline
        return min(SILENT_SECONDS, self.lost_after_seconds) if is_over else self.lost_after_seconds


def reclaim_times(cordoned: Iterable[Cordon]) -> dict[str, datetime]:
    """Returns when nodes under notice are reclaimed."""
    return {found.node: found.deadline for found in cordoned if found.mode == RECLAIM and found.deadline}


def node_statuses(
    rows: Sequence[ObservedNode], silent_seconds: Mapping[str, float], cordoned: Sequence[Cordon], patience: Patience,
    unheard: Collection[str] = (),
) -> dict[str, NodeStatus]:  # fmt: skip
    """Returns the status of each node. Those `unheard` of are silent, although that is forgiven till now."""
    wanted_gpus: dict[tuple[str, str], set[int]] = {}
    for cordon in cordoned:
        mode = "drain" if cordon.mode in EMPTYING else cordon.mode
        wanted_gpus.setdefault((cordon.node, mode), set()).add(cordon.gpu)
    return {
        row.name: _node_status(row, silent_seconds.get(row.name), wanted_gpus, patience, row.name in unheard)
        for row in rows
    }


def _node_status(
    row: ObservedNode,
    silent_seconds: float | None,
    wanted_gpus: Mapping[tuple[str, str], set[int]],
    patience: Patience,
    is_unheard: bool,
) -> NodeStatus:
    gpus: list[Free] = row.status.get("gpus") or []
    mismatch = any(
        (condition["type"], condition["status"], condition["reason"]) == ("InventoryMismatch", "True", OTHER_DEVICES)
        for condition in row.status.get("conditions", ())
    )
    indexes = [int(gpu["index"]) for gpu in gpus]
    # A status that was written before there was this field has the reason alone, till its node has news.
    missing = [int(gpu["index"]) for gpu in gpus if gpu.get("missing") or gpu.get("reason") == MISSING]

    def chosen(mode: str) -> tuple[int, ...]:
        wanted = wanted_gpus.get((row.name, mode), set())
        return tuple(index for index in indexes if index in wanted or ALL_GPUS in wanted) or tuple(
            sorted(wanted - {ALL_GPUS})
        )

    ailing = msgspec.convert(row.ailing or [], list[AilingGpu])
    return NodeStatus(
        name=row.name,
        state=_state(silent_seconds, mismatch, patience.seconds(row.name), is_unheard),
        failed_gpus=tuple(sorted({*(gpu.index for gpu in ailing if is_out(gpu)), *missing})),
        missing_gpus=tuple(missing),
        cordoned_gpus=chosen("cordon"),
        draining_gpus=chosen("drain"),
        partition_requests=_list_requests(row, patience.now),
        templates=tuple(row.status["templates"]) if row.status.get("templates") else None,
        admitted=msgspec.convert(row.status.get("admitted") or (), tuple[AdmittedEntry, ...]),
        reclaimed_at=patience.reclaimed_at.get(row.name),
    )


def _list_requests(row: ObservedNode, now: datetime) -> tuple[tuple[int, int], ...]:
    """Returns the GPUs whose node asks for another partition, or did within the last hour, and the answers due.

    It gets an answer at once, and another one each time that it has asked for so long again, up to a limit. While a
    node is silent it does not ask.
    """
    known = row.requested_at or {}
    requests = dict(known)
    for gpu in row.repartition or ():
        last = min(row.received_at or now, now)
        since = row.detail_at or now
        is_same_series = gpu in known and since - known[gpu].at < REQUEST_HELD
        before = known[gpu].seconds if is_same_series else 0.0
        requests[gpu] = PartitionRequest(last, max((last - since).total_seconds(), 0.0) + before)
    return tuple(
        (gpu, min(1 + int(request.seconds // ANSWER_SECONDS), MOST_ANSWERS))
        for gpu, request in sorted(requests.items())
        if now - request.at < REQUEST_HELD
    )


def _state(silent_seconds: float | None, mismatch: bool, lost_after_seconds: float, is_unheard: bool) -> NodeState:
    if silent_seconds is None:
        return "never"
    if silent_seconds > lost_after_seconds:
        return "lost"
    if silent_seconds > SILENT_SECONDS or is_unheard:
        return "silent"
    return "mismatch" if mismatch else "reporting"


def is_out(gpu: AilingGpu) -> bool:
    """Returns whether nothing can run on this GPU."""
    return gpu.fenced or gpu.health == "failed"
