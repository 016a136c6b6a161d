"""Draws the fleet: nodes by GPU type, troubled ones first; counts all of them, and draws a page of them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from app.console.boxes import (
    MOST_BOXES,
    GpuResident,
    NodeDrawing,
    NodeLook,
    draw,
    find_leaving,
    group_by_gpu,
    residents_of,
)
from app.console.data import ConsoleData
from app.console.page_request import FleetQuery
from app.console.wording import age, ahead
from app.nodes.reporting_condition import PATIENCE
from app.store.fleet.fleet_map import MapNode

MOST_GPUS = 1024  # boxes on a page
MOST_NODES = 320
SCALES = ((16, 4), (64, 3), (256, 2))  # (boxes on a page at most, times as large)
TOOLTIP_CHARACTERS = 45_000  # of all boxes of a page
NEVER_REPORTED = "never reported"
CLOSED = {"drain": "drained", "cordon": "cordoned", "cluster": "drained by its cluster"}
WELL = ("ok", "degraded", "unknown")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """The nodes of a GPU type."""

    gpu_type: str
    prefix: str  # of all names
    nodes: int
    gpus: int
    used: int
    sm_share: float | None
    memory_share: float | None
    drawn: tuple[NodeDrawing, ...]


@dataclass(frozen=True, slots=True)
class FleetPicture:
    groups: tuple[NodeGroup, ...]
    nodes: int
    gpus: int
    used: int
    silent: tuple[tuple[str, str], ...]  # (node, for how long), the longest first
    unheard: bool  # no node reports: the fault may be this server's
    ailing: tuple[tuple[str, int, str], ...]  # (node, GPU, why)
    reclaimed: tuple[tuple[str, str], ...]  # (node, when), the soonest first
    closed: tuple[tuple[str, str], ...]  # (node, how and since when), the earliest first
    pages: int
    page: int
    scale: int  # of the boxes: a small fleet is drawn larger

    @property
    def is_known(self) -> bool:
        """True if no node has fallen silent; one that has never reported runs nothing."""
        return all(duration == NEVER_REPORTED for _, duration in self.silent)


def draw_fleet(data: ConsoleData, query: FleetQuery) -> FleetPicture:
    """Counts the whole fleet, and draws a page of it."""
    residents = group_by_gpu(data.body)
    leaving = find_leaving(data.copies, residents) if data.is_in_force else {}
    services = tuple(service["service"] for service in data.services)
    silence = {node.name: _silent(node, data.at) for node in data.nodes}
    ailing = {node.name: _ailing(node) for node in data.nodes}
    wrong = {node.name for node in data.nodes if silence[node.name] or ailing[node.name]}
    order = sorted(data.nodes, key=lambda node: (node.gpu_type, node.name not in wrong, _key(node.name)))
    pages = _pages(order)
    page = min(query.fleet, len(pages)) if pages else 1
    shown = {line.name for line in (pages[page - 1] if pages else ())}
    boxes = sum(min(max(node.gpus, 1), MOST_BOXES) for node in order if node.name in shown)
    room = TOOLTIP_CHARACTERS // max(boxes, 1)
    groups = []
    by_type: dict[str, list[MapNode]] = defaultdict(list)
    for node in order:
        by_type[node.gpu_type].append(node)
    for gpu_type, nodes in by_type.items():
        memory_gib = data.memory_gib.get(gpu_type, 0.0)
        prefix = _prefix([node.name for node in nodes])
        drawn = tuple(
            draw(
                NodeLook(
                    node.name, node.gpus, silence[node.name], tuple(sorted(ailing[node.name])),
                    CLOSED.get(node.closed, node.closed), tuple(node.closed_gpus),
                    tuple(leaving.get(node.name, ())) if not silence[node.name] else (),  # what it said is over
                ),
                prefix,
                residents_of(residents, node.name), memory_gib, room, services, query.service,
            )
            for node in nodes
            if node.name in shown
        )  # fmt: skip
        groups.append(_group(gpu_type, prefix, nodes, residents, memory_gib, drawn))
    gone = {node.name for node in data.nodes if _is_gone(node, data.at)}
    silent = [(name, duration) for name, duration in silence.items() if duration and name not in gone]
    reported = [node.received_at for node in data.nodes if node.received_at]
    since = {node.name: node.received_at for node in data.nodes}
    silent.sort(key=lambda node: (since[node[0]] is None, since[node[0]] or data.at, node[0]))
    return FleetPicture(
        groups=tuple(groups),
        nodes=len(data.nodes),
        gpus=sum(node.gpus for node in data.nodes),
        used=sum(len(gpus) for gpus in residents.values()),
        silent=tuple(silent),
        unheard=bool(reported) and data.at - max(reported) > PATIENCE,
        ailing=tuple((name, index, why) for name, found in ailing.items() for index, why in sorted(found.items())),
        reclaimed=_list_reclaimed(data),
        closed=_list_closed(data),
        pages=max(1, len(pages)),
        page=page,
        scale=next((scale for most, scale in SCALES if boxes <= most), 1),
    )


def _group(
    gpu_type: str,
    prefix: str,
    nodes: Sequence[MapNode],
    residents: Mapping[str, Mapping[int, Sequence[GpuResident]]],
    memory_gib: float,
    drawn: tuple[NodeDrawing, ...],
) -> NodeGroup:
    on = [residents.get(node.name, {}) for node in nodes]
    gpus, used = sum(node.gpus for node in nodes), sum(map(len, on))
    everything = [line for gpus_of in on for found in gpus_of.values() for line in found]
    sm = sum(resident.sm_percent for resident in everything) / 100 / gpus if gpus else None
    memory = sum(resident.memory_gib for resident in everything) / (gpus * memory_gib) if gpus and memory_gib else None
    return NodeGroup(gpu_type, prefix, len(nodes), gpus, used, sm, memory, drawn)


def _silent(node: MapNode, at: datetime) -> str:
    if node.received_at is None:
        return NEVER_REPORTED
    silence = at - node.received_at
    return f"for {age(silence / timedelta(seconds=1))}" if silence > PATIENCE else ""


def _is_gone(node: MapNode, at: datetime) -> bool:
    """Returns whether its cloud was to take the node back by now: then its silence is expected."""
    return bool(node.reclaim_at) and datetime.fromisoformat(node.reclaim_at) <= at


def _list_reclaimed(data: ConsoleData) -> tuple[tuple[str, str], ...]:
    """Returns the nodes under notice, each with the time that is left."""
    found = sorted((node.reclaim_at, node.name) for node in data.nodes if node.reclaim_at)
    return tuple((name, ahead(datetime.fromisoformat(deadline), data.at)) for deadline, name in found)


def _list_closed(data: ConsoleData) -> tuple[tuple[str, str], ...]:
    """Returns the nodes that plans leave or put nothing new on, each with how and since when."""
    found = sorted((node.closed_at or data.at, node.name, node.closed) for node in data.nodes if node.closed)
    return tuple(
        (name, f"{CLOSED.get(mode, mode)} for {age((data.at - since) / timedelta(seconds=1))}")
        for since, name, mode in found
    )


def _ailing(node: MapNode) -> dict[int, str]:
    """Returns by index why a GPU is unhealthy."""
    found = {}
    for gpu in node.ailing or ():
        health = str(gpu.get("health", "ok"))
        if gpu.get("fenced") or health not in WELL:
            found[int(gpu["index"])] = str(gpu.get("reason") or ("fenced" if gpu.get("fenced") else health))
    return found


def _pages(order: Sequence[MapNode]) -> list[list[MapNode]]:
    """Splits the nodes into pages that stay small."""
    pages: list[list[MapNode]] = []
    room = 0
    for node in order:
        size = min(max(node.gpus, 1), MOST_BOXES)
        if not pages or size > room or len(pages[-1]) >= MOST_NODES:
            pages.append([])
            room = MOST_GPUS
        pages[-1].append(node)
        room -= size
    return pages


def _prefix(names: Sequence[str]) -> str:
    """Returns the common prefix of the names up to a hyphen, which is shown once."""
    first, last = min(names), max(names)  # in order, all others lie between them
    common = next((at for at, pair in enumerate(zip(first, last, strict=False)) if pair[0] != pair[1]), 0)
    return first[: first.rfind("-", 0, common) + 1]


def _key(name: str) -> list[tuple[int, str]]:
    """Sorts node-2 before node-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]
