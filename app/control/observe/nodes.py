"""Derives the status of nodes, as planning needs it, from their reports and their silence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.control.domain.snapshot import SILENT_SECONDS, NodeState, NodeStatus
from app.nodes.detail import AilingGpu
from app.store.fleet.cordons import ALL_GPUS, Cordon
from app.store.fleet.observed import ObservedNode


def node_statuses(
    rows: Sequence[ObservedNode],
    silent_seconds: Mapping[str, float],
    cordoned: Sequence[Cordon],
    lost_after_seconds: float,
) -> dict[str, NodeStatus]:
    """Returns the status of each node."""
    wanted_gpus: dict[tuple[str, str], set[int]] = {}
    for cordon in cordoned:
        wanted_gpus.setdefault((cordon.node, cordon.mode), set()).add(cordon.gpu)
    return {row.name: _node_status(row, silent_seconds.get(row.name), wanted_gpus, lost_after_seconds) for row in rows}


def _node_status(
    row: ObservedNode,
    silent_seconds: float | None,
    wanted_gpus: Mapping[tuple[str, str], set[int]],
    lost_after_seconds: float,
) -> NodeStatus:
    gpus: list[dict[str, Any]] = row.status.get("gpus") or []
    conditions = {condition["type"]: condition["status"] for condition in row.status.get("conditions", ())}
    indexes = [int(gpu["index"]) for gpu in gpus]

    def chosen(mode: str) -> tuple[int, ...]:
        wanted = wanted_gpus.get((row.name, mode), set())
        return tuple(index for index in indexes if index in wanted or ALL_GPUS in wanted) or tuple(
            sorted(wanted - {ALL_GPUS})
        )

    ailing = msgspec.convert(row.ailing or [], list[AilingGpu])
    return NodeStatus(
        name=row.name,
        state=_state(silent_seconds, conditions.get("InventoryMismatch") == "True", lost_after_seconds),
        failed_gpus=tuple(sorted(gpu.index for gpu in ailing if is_out(gpu))),
        cordoned_gpus=chosen("cordon"),
        draining_gpus=chosen("drain"),
        uuids=tuple(str(gpu.get("uuid", "")) for gpu in sorted(gpus, key=lambda gpu: int(gpu["index"]))),
        templates=tuple(row.status["templates"]) if row.status.get("templates") else None,
    )


def _state(silent_seconds: float | None, mismatch: bool, lost_after_seconds: float) -> NodeState:
    if silent_seconds is None:
        return "never"
    if silent_seconds > lost_after_seconds:
        return "lost"
    if silent_seconds > SILENT_SECONDS:
        return "silent"
    return "mismatch" if mismatch else "reporting"


def is_out(gpu: AilingGpu) -> bool:
    """Returns whether nothing can run on this GPU."""
    return gpu.fenced or gpu.health == "failed"
