"""Draws a node as boxes: a box per GPU, filled from below by the planned SM%, coloured by service.

The strip on the right of a box is its memory. Copies that leave are hatched above what is planned. A node is a path per
colour, and one tooltip with a line per GPU: each element costs the browser more than its bytes do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import NamedTuple
from zlib import crc32

from app.console.wording import THIN
from app.store.fleet.fleet_map import ReportedCopy
from solvers.planning.plan_fields import held_gpus
from solvers.planning.wire import PlanLinesWire

HUES = 12
PITCH, WIDE, HIGH = 20, 13, 20  # of a box in units of the drawing; its memory is 4 wide, 1 apart
MOST_BOXES = 64  # of a node
JOB = "j"  # the colour of jobs
MUTED = "o"
HATCH = 3.0  # between the lines of a copy that leaves
LEAST_HATCH = 6.0  # its height
MOST_NAMED = 5  # leaving copies of a node
KEPT_DRAWINGS = 1024  # three pages of nodes


class GpuResident(NamedTuple):
    """A service's instance or a job that is planned on a GPU."""

    name: str  # tenant/name
    is_job: bool
    sm_percent: float
    memory_gib: float


Residents = tuple[tuple[int, tuple[GpuResident, ...]], ...]  # by GPU; hashable, so that drawings can be kept


class LeavingCopy(NamedTuple):
    """A copy that runs on a GPU where the plan has none of its service or job any more."""

    gpu: int
    name: str  # tenant/name
    sm_percent: float
    stage: str


class NodeLook(NamedTuple):
    """The facts of a node itself that its drawing shows."""

    name: str
    gpus: int  # 0: those with something on them
    silent: str = ""  # for how long; empty: it reports
    ailing: tuple[int, ...] = ()
    closed: str = ""  # in a word: drained, cordoned; empty: plans use it
    closed_gpus: tuple[int, ...] = ()
    leaving: tuple[LeavingCopy, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeDrawing:
    """A node, ready to be drawn."""

    name: str
    short: str  # without the prefix of its group
    label: str  # in words, for screen readers
    width: int
    boxes: str  # the path of the empty boxes
    paths: tuple[tuple[str, str], ...]  # (class, path)
    tooltip: str  # a line per GPU
    silent: str  # for how long; empty: it reports
    ailing: tuple[int, ...]
    closed: str
    is_left: bool  # by copies
    more: int  # GPUs that are not drawn


def group_by_gpu(body: PlanLinesWire) -> dict[str, dict[int, list[GpuResident]]]:
    """Returns by node and GPU what the plan has there, the largest first."""
    found: dict[str, dict[int, list[GpuResident]]] = defaultdict(lambda: defaultdict(list))
    for instance in body["instances"]:
        for gpu in held_gpus(instance):
            found[instance["node"]][gpu].append(
                GpuResident(instance["service"], False, instance["smPercent"], instance["memoryGib"])
            )
    for job in body["jobs"]:
        for gpu in held_gpus(job):
            found[job["node"]][gpu].append(GpuResident(job["job"], True, job["smPercent"], job["memoryGib"]))
    for gpus in found.values():
        for residents in gpus.values():
            residents.sort(key=lambda resident: (resident.is_job, -resident.sm_percent, resident.name))
    return found


def residents_of(found: Mapping[str, Mapping[int, Sequence[GpuResident]]], node: str) -> Residents:
    """Returns what is on each GPU of a node, from all that `group_by_gpu` found."""
    return tuple((index, tuple(on)) for index, on in found.get(node, {}).items())


def find_leaving(
    copies: Sequence[ReportedCopy], residents: Mapping[str, Mapping[int, Sequence[GpuResident]]]
) -> dict[str, list[LeavingCopy]]:
    """Returns by node the copies that run where the plan in force has none of their service or job any more."""
    found: dict[str, list[LeavingCopy]] = defaultdict(list)
    for copy in copies:
        planned = residents.get(copy.node, {}).get(copy.gpu, ())
        if all(resident.name != copy.name for resident in planned):
            leaving = LeavingCopy(copy.gpu, copy.name or "an unknown copy", copy.sm_percent, copy.stage)
            found[copy.node].append(leaving)
    return found


def assign_hue(name: str) -> str:
    """Returns the colour of a service, by its name alone: it stays whatever else is declared or deleted."""
    return f"c{crc32(name.encode()) % HUES}"


@lru_cache(maxsize=16)
def assign_hues(names: tuple[str, ...]) -> Mapping[str, str]:
    """Returns the colour of each service."""
    return {name: assign_hue(name) for name in names}


@lru_cache(maxsize=KEPT_DRAWINGS)
def draw(
    node: NodeLook,
    prefix: str,
    on_gpus: Residents,
    memory_gib: float,
    room: int,
    services: tuple[str, ...],
    only: str = "",
) -> NodeDrawing:
    """Draws the boxes of a node, with some `room` characters for each in the tooltip; `only` mutes other services.

    Most nodes are as they were a refresh ago: their drawings are kept.
    """
    residents, hues = dict(on_gpus), assign_hues(services)
    own = {*residents, *(copy.gpu for copy in node.leaving)}
    indexes = range(node.gpus) if node.gpus else sorted(own)  # a tenant sees only its own
    drawn = list(indexes)[:MOST_BOXES]
    paths: dict[str, list[str]] = defaultdict(list)
    lines = []
    for at, index in enumerate(drawn):
        x, height, on = at * PITCH, 0.0, residents.get(index, ())
        for resident in on:
            share = min(resident.sm_percent / 100 * HIGH, HIGH - height)
            if share > 0:
                colour = JOB if resident.is_job else hues.get(resident.name, MUTED)
                paths[MUTED if only and resident.name != only else colour].append(
                    f"M{x} {_short(HIGH - height)}h{WIDE}v-{_short(share)}h-{WIDE}z"
                )
                height += share
        used = min(1.0, sum(resident.memory_gib for resident in on) / memory_gib) * HIGH if memory_gib else 0.0
        if used > 0:
            paths["m"].append(f"M{x + WIDE + 1} {HIGH}h4v-{_short(used)}h-4z")
        if index in node.ailing:
            paths["x"].append(f"M{x} 0l18 20m0-20l-18 20")
        leaving = [copy for copy in node.leaving if copy.gpu == index]
        if leaving:
            high = max(LEAST_HATCH, min(sum(copy.sm_percent for copy in leaving) / 100 * HIGH, HIGH - height))
            paths["l"].append(_hatch(x, max(0.0, HIGH - height - high), high))
        states = [word for word, found in (("unhealthy", node.ailing), ("closed", node.closed_gpus)) if index in found]
        lines.append(_line(" ".join([str(index), *states]), on, room) + _name_leaving(leaving))
    return NodeDrawing(
        name=node.name,
        short=node.name.removeprefix(prefix),
        label=_label(node, residents, memory_gib),
        width=max(1, len(drawn)) * PITCH - 2,
        boxes=_boxes(len(drawn)),
        paths=tuple((name, "".join(parts)) for name, parts in sorted(paths.items())),
        tooltip="\n".join(lines),
        silent=node.silent,
        ailing=node.ailing,
        closed=node.closed,
        is_left=bool(node.leaving),
        more=len(indexes) - len(drawn),
    )


def _hatch(x: int, top: float, high: float) -> str:
    """Returns oblique lines over a part of a box."""
    lines, steps = [], int((WIDE + high) // HATCH)
    for step in range(1, steps + 1):
        reach = step * HATCH
        left, lower = max(0.0, reach - high), min(reach, high)
        length = min(reach, WIDE) - left
        lines.append(f"M{_short(x + left)} {_short(top + lower)}l{_short(length)}-{_short(length)}")
    return "".join(lines)


def _name_leaving(leaving: Sequence[LeavingCopy]) -> str:
    return f"; leaving: {', '.join(dict.fromkeys(copy.name for copy in leaving))}" if leaving else ""


@cache
def _boxes(gpus: int) -> str:
    return "".join(f"M{at * PITCH} 0h18v{HIGH}h-18z" for at in range(gpus))


def _line(gpu: str, on: Sequence[GpuResident], room: int) -> str:
    names = [f"{resident.name} {resident.sm_percent:g}" for resident in on]
    while len(names) > 1 and sum(map(len, names)) > room:
        names.pop()
    more = f" and {len(on) - len(names)} more" if len(on) > len(names) else ""
    return f"{gpu}: {', '.join(names) or 'empty'}{more}"


def _label(node: NodeLook, residents: Mapping[int, Sequence[GpuResident]], memory_gib: float) -> str:
    everything = [resident for on in residents.values() for resident in on]
    gpus = node.gpus or len(residents)
    sm = sum(resident.sm_percent for resident in everything) / gpus if gpus else 0.0
    memory = (
        sum(resident.memory_gib for resident in everything) / (gpus * memory_gib) * 100 if gpus and memory_gib else 0.0
    )
    facts = [f"{gpus} GPU{'s' if gpus > 1 else ''}", f"{len(residents)} in use", f"SM {sm:.0f}{THIN}%"]
    facts.append(f"memory {memory:.0f}{THIN}%")
    if node.ailing:
        facts.append(f"unhealthy: GPU {', '.join(map(str, node.ailing))}")
    if node.leaving:
        facts.append(f"leaving: {', '.join(dict.fromkeys(copy.name for copy in node.leaving[:MOST_NAMED]))}")
    silent = f"silent {node.silent}; " if node.silent else ""
    closed = f"{node.closed}; " if node.closed else ""
    return f"{node.name}: {silent}{closed}{', '.join(facts)}"


def _short(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
