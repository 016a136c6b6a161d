"""One node as boxes: each a GPU, filled from below by the SM% of what is planned there, coloured by service.

The strip on a box's right is its memory. Paths are kept short: a thousand GPUs are some tens of kilobytes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from app.console.wording import THIN
from app.store.fleet.fleet_map import MapNode

HUES = 12
PITCH, WIDE, HIGH = 20, 13, 20  # of a box in units of the drawing; its memory is 4 wide, 1 apart
MOST_OF_NODE = 64
JOB = "j"  # the colour of jobs
MUTED = "o"


@dataclass(frozen=True, slots=True)
class GpuResident:
    """What is planned on a GPU: a service's instance, or a job."""

    name: str  # tenant/name
    is_job: bool
    sm_percent: float
    memory_gib: float


@dataclass(frozen=True, slots=True)
class NodeDrawing:
    """One node, ready to be drawn."""

    name: str
    short: str  # without what all of its group begin with
    label: str  # in words, for who does not see it
    width: int
    paths: tuple[tuple[str, str], ...]  # (class, path)
    titles: tuple[tuple[int, str], ...]  # (where, what a pointer is told)
    silent: str  # for how long; empty: it is heard
    ailing: tuple[int, ...]
    more: int  # GPUs that are not drawn


def group_by_gpu(body: Mapping[str, Any]) -> dict[str, dict[int, list[GpuResident]]]:
    """By node and GPU what the plan has there, the largest first."""
    found: dict[str, dict[int, list[GpuResident]]] = defaultdict(lambda: defaultdict(list))
    for one in body.get("instances", ()):
        found[one["node"]][one["gpu"]].append(GpuResident(one["service"], False, one["smPercent"], one["memoryGib"]))
    for one in body.get("jobs", ()):
        found[one["node"]][one["gpu"]].append(GpuResident(one["job"], True, one["smPercent"], one["memoryGib"]))
    for gpus in found.values():
        for residents in gpus.values():
            residents.sort(key=lambda one: (one.is_job, -one.sm_percent, one.name))
    return found


def hue(name: str) -> str:
    """The colour of a service: the same on every page and every day."""
    return f"c{crc32(name.encode()) % HUES}"


def draw(
    node: MapNode,
    prefix: str,
    residents: Mapping[int, Sequence[GpuResident]],
    memory_gib: float,
    silent: str,
    ailing: Sequence[int],
    room: int,
    only: str = "",
) -> NodeDrawing:
    """Its boxes, each told in about `room` characters. With `only`, what is not that service is muted."""
    indexes = range(node.gpus) if node.gpus else sorted(residents)  # a tenant sees but its own
    drawn = list(indexes)[:MOST_OF_NODE]
    paths: dict[str, list[str]] = defaultdict(list)
    titles = []
    for at, index in enumerate(drawn):
        x, height, on = at * PITCH, 0.0, residents.get(index, ())
        for one in on:
            share = min(one.sm_percent / 100 * HIGH, HIGH - height)
            if share > 0:
                colour = JOB if one.is_job else hue(one.name)
                paths[MUTED if only and one.name != only else colour].append(
                    f"M{x} {_short(HIGH - height)}h{WIDE}v-{_short(share)}h-{WIDE}z"
                )
                height += share
        used = min(1.0, sum(one.memory_gib for one in on) / memory_gib) * HIGH if memory_gib else 0.0
        if used > 0:
            paths["m"].append(f"M{x + WIDE + 1} {HIGH}h4v-{_short(used)}h-4z")
        if index in ailing:
            paths["x"].append(f"M{x} 0l18 20m0-20l-18 20")
        titles.append((x, _title(index, on, index in ailing, room)))
    return NodeDrawing(
        name=node.name,
        short=node.name.removeprefix(prefix),
        label=_label(node, residents, memory_gib, silent, ailing),
        width=max(1, len(drawn)) * PITCH - 2,
        paths=tuple((name, "".join(parts)) for name, parts in sorted(paths.items())),
        titles=tuple(titles),
        silent=silent,
        ailing=tuple(ailing),
        more=len(indexes) - len(drawn),
    )


def _title(index: int, on: Sequence[GpuResident], is_ailing: bool, room: int) -> str:
    told = [f"{one.name} {one.sm_percent:g}" for one in on]
    while len(told) > 1 and sum(map(len, told)) > room:
        told.pop()
    more = f" and {len(on) - len(told)} more" if len(on) > len(told) else ""
    return f"{index}{' not well' if is_ailing else ''}: {', '.join(told) or 'empty'}{more}"


def _label(
    node: MapNode, residents: Mapping[int, Sequence[GpuResident]], memory_gib: float, silent: str, ailing: Sequence[int]
) -> str:
    everything = [one for on in residents.values() for one in on]
    gpus = node.gpus or len(residents)
    sm = sum(one.sm_percent for one in everything) / gpus if gpus else 0.0
    memory = sum(one.memory_gib for one in everything) / (gpus * memory_gib) * 100 if gpus and memory_gib else 0.0
    said = [f"{gpus} GPU{'s' if gpus > 1 else ''}", f"{len(residents)} in use", f"SM {sm:.0f}{THIN}%"]
    said.append(f"memory {memory:.0f}{THIN}%")
    if ailing:
        said.append(f"not well: GPU {', '.join(map(str, ailing))}")
    return f"{node.name}: {'silent ' + silent + '; ' if silent else ''}{', '.join(said)}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
