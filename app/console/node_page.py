"""Words the page of a node: GPU by GPU its health, its last minute, and what is planned there. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from app.console.boxes import MOST_BOXES, GpuResident, find_leaving, group_by_gpu
from app.console.data import ConsoleData
from app.console.fleet import draw_fleet
from app.console.page_request import FleetQuery
from app.manifests.model import Fields


@dataclass(frozen=True, slots=True)
class GpuLine:
    """A GPU of the node; `ailing` is why it is unhealthy, `minute` what was measured last."""

    index: int
    ailing: str
    residents: tuple[GpuResident, ...]
    sm_percent: float
    memory_gib: float
    of_gib: float | None
    minute: Fields | None
    leaving: tuple[str, ...]  # copies that run there, and are not planned there any more


@dataclass(frozen=True, slots=True)
class NodePage:
    name: str
    gpu_type: str
    silent: str  # for how long; empty: it reports
    reclaimed: str  # when its cloud takes it back
    last_report: datetime | None
    gpus: tuple[GpuLine, ...]
    more: int  # GPUs that are not listed


def describe_node(data: ConsoleData, minutes: Mapping[int, Fields]) -> NodePage:
    """Describes the only node of `data`."""
    (node,) = data.nodes
    picture = draw_fleet(data, FleetQuery())
    planned = group_by_gpu(data.body)
    residents, silent = planned.get(node.name, {}), dict(picture.silent)
    speaks = data.is_in_force and node.name not in silent
    leaving = find_leaving(data.copies, planned).get(node.name, []) if speaks else []
    why = {index: reason for _, index, reason in picture.ailing}
    indexes = (
        list(range(node.gpus)) if node.gpus else sorted({*residents, *(copy.gpu for copy in leaving)})
    )  # a tenant sees only its own
    lines = tuple(
        GpuLine(
            index=index,
            ailing=why.get(index, ""),
            residents=tuple(residents.get(index, ())),
            sm_percent=sum(resident.sm_percent for resident in residents.get(index, ())),
            memory_gib=sum(resident.memory_gib for resident in residents.get(index, ())),
            of_gib=data.memory_gib.get(node.gpu_type),
            minute=minutes.get(index),
            leaving=tuple(f"{copy.name} ({copy.stage})" for copy in leaving if copy.gpu == index),
        )
        for index in indexes[:MOST_BOXES]
    )
    reclaimed = dict(picture.reclaimed)
    return NodePage(
        node.name, node.gpu_type, silent.get(node.name, ""), reclaimed.get(node.name, ""), node.received_at, lines,
        len(indexes) - len(lines),
    )  # fmt: skip
