"""Words the page of a node: GPU by GPU its health, its last minute, and what is planned there. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.console.boxes import MOST_BOXES, GpuResident, group_by_gpu
from app.console.data import ConsoleData
from app.console.fleet import draw_fleet
from app.console.page_request import FleetQuery
from app.manifests.model import Fields
from app.nodes.running import OwnedCopy

HOLDS_NOTHING = ("gone", "swapped")


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


def describe_node(data: ConsoleData, minutes: Mapping[int, Fields], copies: Sequence[OwnedCopy] = ()) -> NodePage:
    """Describes the only node of `data`."""
    (node,) = data.nodes
    picture = draw_fleet(data, FleetQuery())
    residents = group_by_gpu(data.body).get(node.name, {})
    why = {index: reason for _, index, reason in picture.ailing}
    indexes = list(range(node.gpus)) if node.gpus else sorted(residents)  # a tenant sees only its own
    lines = tuple(
        GpuLine(
            index=index,
            ailing=why.get(index, ""),
            residents=tuple(residents.get(index, ())),
            sm_percent=sum(resident.sm_percent for resident in residents.get(index, ())),
            memory_gib=sum(resident.memory_gib for resident in residents.get(index, ())),
            of_gib=data.memory_gib.get(node.gpu_type),
            minute=minutes.get(index),
            leaving=_name_leaving(copies, index, residents.get(index, ())),
        )
        for index in indexes[:MOST_BOXES]
    )
    silent, reclaimed = dict(picture.silent), dict(picture.reclaimed)
    return NodePage(
        node.name, node.gpu_type, silent.get(node.name, ""), reclaimed.get(node.name, ""), node.received_at, lines,
        len(indexes) - len(lines),
    )  # fmt: skip


def _name_leaving(copies: Sequence[OwnedCopy], gpu: int, residents: Iterable[GpuResident]) -> tuple[str, ...]:
    """Returns the copies on a GPU of services and jobs that the plan does not have there, each with its stage."""
    planned = {resident.name for resident in residents}
    return tuple(
        f"{owner} ({copy.stage})"
        for copy in copies
        if gpu in copy.all_gpus and copy.stage not in HOLDS_NOTHING and (owner := _name_owner(copy)) not in planned
    )


def _name_owner(copy: OwnedCopy) -> str:
    return f"{copy.tenant}/{copy.service or copy.job}" if copy.tenant else "an unknown copy"
