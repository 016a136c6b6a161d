"""Draws nodes before and after a plan: what moves is marked and leads to its service, the rest is pale. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.console.boxes import HIGH, JOB, MOST_BOXES, PITCH, GpuResident, assign_hue, group_by_gpu
from app.console.links import job_link, service_link
from app.console.wording import THIN
from app.store.fleet.fleet_map import MapNode
from solvers.planning.wire import PlanLinesWire

WIDE = 18  # of a box
MOST_NODES = 50

OnNode = Mapping[int, Sequence[GpuResident]]


@dataclass(frozen=True, slots=True)
class MovedBox:
    """A part of a GPU that is there on one side only."""

    path: str
    hue: str
    link: str
    label: str


@dataclass(frozen=True, slots=True)
class NodeSide:
    """A node before or after: empty boxes, what stays there, and what does not."""

    words: str  # before, after
    width: int
    boxes: str
    stays: str  # a path
    moved: tuple[MovedBox, ...]


@dataclass(frozen=True, slots=True)
class NodeMoves:
    """A node that changes."""

    name: str
    gpu_type: str
    sides: tuple[NodeSide, NodeSide]
    lines: tuple[str, ...]  # for each GPU that changes: what leaves and what comes


@dataclass(frozen=True, slots=True)
class MoveMap:
    """The nodes that change, of which `more` are not drawn."""

    nodes: tuple[NodeMoves, ...]
    more: int


def name_changed_nodes(before: PlanLinesWire, after: PlanLinesWire) -> list[str]:
    """Returns the nodes on which the plans differ, in order."""
    old, new = group_by_gpu(before), group_by_gpu(after)
    return sorted(
        name for name in {*old, *new} if _count_residents(old.get(name, {})) != _count_residents(new.get(name, {}))
    )


def draw_moves(before: PlanLinesWire, after: PlanLinesWire, nodes: Sequence[MapNode]) -> MoveMap:
    """Draws the first of these nodes, and counts the others."""
    old, new = group_by_gpu(before), group_by_gpu(after)
    drawn = tuple(_draw(node, old.get(node.name, {}), new.get(node.name, {})) for node in nodes[:MOST_NODES])
    return MoveMap(drawn, max(0, len(nodes) - MOST_NODES))


def _count_residents(gpus: OnNode) -> dict[int, Counter[GpuResident]]:
    return {gpu: Counter(_drop_memory(resident) for resident in on) for gpu, on in gpus.items() if on}


def _drop_memory(resident: GpuResident) -> GpuResident:
    """Returns the resident without its memory, in which a batch alone makes a difference."""
    return resident._replace(memory_gib=0.0)


def _draw(node: MapNode, before: OnNode, after: OnNode) -> NodeMoves:
    indexes = (list(range(node.gpus)) if node.gpus else sorted({*before, *after}))[:MOST_BOXES]
    left, came = _find_differences(before, after), _find_differences(after, before)
    return NodeMoves(
        node.name,
        node.gpu_type,
        (
            _draw_side("before", "leaves", node.name, indexes, before, left),
            _draw_side("after", "comes to", node.name, indexes, after, came),
        ),
        tuple(
            f"GPU {index}: {', '.join([*_spell('-', left[index]), *_spell('+', came[index])])}"
            for index in indexes
            if left[index] or came[index]
        ),
    )


def _find_differences(here: OnNode, there: OnNode) -> Mapping[int, Counter[GpuResident]]:
    """Returns by GPU what is on this side and not on the other."""
    mine, others = _count_residents(here), _count_residents(there)
    return defaultdict(Counter, {gpu: held - others.get(gpu, Counter()) for gpu, held in mine.items()})


def _spell(sign: str, found: Counter[GpuResident]) -> Iterator[str]:
    for resident, times in sorted(found.items()):
        yield f"{sign}{f'{times} of ' if times > 1 else ''}{resident.name} {resident.sm_percent:g}{THIN}%"


def _draw_side(
    words: str, verb: str, node: str, indexes: Sequence[int], gpus: OnNode,
    moving: Mapping[int, Counter[GpuResident]],
) -> NodeSide:  # fmt: skip
    stays, moved = [], []
    for at, index in enumerate(indexes):
        left, height = Counter(moving.get(index, {})), 0.0
        for resident in gpus.get(index, ()):
            share = min(resident.sm_percent / 100 * HIGH, HIGH - height)
            path = f"M{at * PITCH} {HIGH - height:.1f}h{WIDE}v-{share:.1f}h-{WIDE}z"
            height += share
            if left[_drop_memory(resident)] > 0:
                left[_drop_memory(resident)] -= 1
                moved.append(_draw_box(resident, path, f"{verb} {node}/{index}"))
            else:
                stays.append(path)
    boxes = "".join(f"M{at * PITCH} 0h{WIDE}v{HIGH}h-{WIDE}z" for at in range(len(indexes)))
    return NodeSide(words, max(1, len(indexes)) * PITCH - 2, boxes, "".join(stays), tuple(moved))


def _draw_box(resident: GpuResident, path: str, where: str) -> MovedBox:
    hue = JOB if resident.is_job else assign_hue(resident.name)
    link = job_link(resident.name) if resident.is_job else service_link(resident.name)
    return MovedBox(path, hue, link, f"{resident.name} {where}, {resident.sm_percent:g}{THIN}%")
