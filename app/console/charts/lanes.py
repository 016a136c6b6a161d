"""Draws a lane for each GPU of a node, filled from below by the share of SMs that each service or job held. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from app.console.boxes import JOB, assign_hue
from app.console.charts.drawing import BOTTOM, LEFT, RIGHT, TOP, ChartDrawing, LegendLine
from app.console.charts.scales import time_ticks
from app.console.wording import percent
from app.store.fleet.gpu_holdings import GpuTenure

MOST_LANES = 16
FILLED = 0.85  # of a lane's height
WHOLE = 100.0
MOST_NAMED = 10
MOST_ROWS = 100
MOST_TOLD = 5  # of a GPU, in words

Stack = dict[str, float]  # SM% by holder


@dataclass(frozen=True, slots=True)
class ClosedTime:
    """The time in which plans put nothing on a GPU, or on any of the node's (-1)."""

    gpu: int
    since: datetime


@dataclass(frozen=True, slots=True)
class LaneRow:
    """A holder of a GPU in the time that is drawn."""

    gpu: int
    name: str
    is_job: bool
    begins: datetime
    ends: datetime
    share: float  # of the GPU, in the mean of all the time that is drawn


@dataclass(frozen=True, slots=True)
class LaneFigure:
    """The lanes drawn, and the holders as rows."""

    drawing: ChartDrawing
    rows: Sequence[LaneRow]
    more: int  # GPUs without a lane
    unlisted: int  # rows that are not listed
    is_cut: bool = False  # there were more, older changes than are drawn


def draw_lanes(
    gpus: Sequence[int], tenures: Sequence[GpuTenure], closed: Sequence[ClosedTime], begins: Sequence[datetime],
    step: timedelta, now: datetime, zone: tzinfo,
) -> LaneFigure:  # fmt: skip
    """Draws a lane for each of these GPUs, in these steps up to now."""
    shown, length = gpus[:MOST_LANES], (begins[-1] + step - begins[0]).total_seconds()
    pitch = (BOTTOM - TOP) / max(1, len(shown))
    stacks = _stack(tenures, begins, step)
    parts_by_look: dict[str, list[str]] = defaultdict(list)
    looks = {_name(tenure): _look(tenure) for tenure in tenures}

    def x(moment: datetime) -> float:
        return LEFT + (RIGHT - LEFT) * max(0.0, (moment - begins[0]).total_seconds()) / length

    for lane, gpu in enumerate(shown):
        low = TOP + pitch * (lane + (1 + FILLED) / 2)
        height = pitch * FILLED
        parts_by_look["bar empty"].append(_box(LEFT, x(now), low, height))
        for first, last, stack in _join_alike(stacks.get(gpu, {})):
            base, scale = low, height / max(WHOLE, sum(stack.values()))
            for name, sm_percent in sorted(stack.items()):
                right = x(min(begins[last] + step, now))
                parts_by_look[f"bar {looks[name]}"].append(_box(x(begins[first]), right, base, sm_percent * scale))
                base -= sm_percent * scale
        for time in closed:
            if time.gpu in (gpu, -1):
                parts_by_look["line closed"].append(_box(x(time.since), x(now), low, height))
    rows = sorted(_list_rows(tenures, shown, length), key=lambda row: (row.gpu, row.begins, row.name))
    ends = begins[-1] + step
    return LaneFigure(
        ChartDrawing(
            id="lanes", title="Who held each GPU", unit="share of its SMs, and idle where it is grey", note="",
            sentence=_sentence(rows, shown), is_empty=not shown, is_stacked=True,
            value_ticks=tuple((round(TOP + pitch * (lane + 0.5), 1), f"GPU {gpu}") for lane, gpu in enumerate(shown)),
            time_ticks=tuple((round(x(at), 1), words) for at, words in time_ticks(begins[0], ends, zone)),
            paths=tuple((look, "".join(parts_by_look[look])) for look in sorted(parts_by_look, key=_order)),
            legend=_legend(rows, looks, "line closed" in parts_by_look),
        ),
        rows[:MOST_ROWS], len(gpus) - len(shown), max(0, len(rows) - MOST_ROWS),
    )  # fmt: skip


def _stack(tenures: Sequence[GpuTenure], begins: Sequence[datetime], step: timedelta) -> dict[int, dict[int, Stack]]:
    """Returns by GPU and step the mean share that each holder had."""
    found: dict[int, dict[int, Stack]] = defaultdict(lambda: defaultdict(lambda: defaultdict(float)))
    for tenure in tenures:
        first = max(0, (tenure.begins - begins[0]) // step)
        last = min(len(begins) - 1, (tenure.ends - begins[0]) // step)
        for at in range(first, last + 1):
            inside = min(tenure.ends, begins[at] + step) - max(tenure.begins, begins[at])
            if inside > timedelta(0):
                found[tenure.gpu][at][_name(tenure)] += tenure.sm_percent * (inside / step)
    return found


def _join_alike(stacks: Mapping[int, Stack]) -> Iterator[tuple[int, int, Stack]]:
    """Yields the first and the last of consecutive steps with the same holders: most of the time nothing changes."""
    at = min(stacks, default=0)
    for first, stack in sorted(stacks.items()):
        if first < at:
            continue
        at = first + 1
        while stacks.get(at) == stack:
            at += 1
        yield first, at - 1, stack


def _list_rows(tenures: Sequence[GpuTenure], gpus: Sequence[int], seconds: float) -> Iterator[LaneRow]:
    """Yields the holders of each GPU, the first one first."""
    by_holder: dict[tuple[int, str], list[GpuTenure]] = defaultdict(list)
    for tenure in tenures:
        by_holder[tenure.gpu, _name(tenure)].append(tenure)
    for (gpu, name), own in by_holder.items():
        if gpu in gpus:
            held_percent = sum(tenure.sm_percent * (tenure.ends - tenure.begins).total_seconds() for tenure in own)
            yield LaneRow(
                gpu, name, bool(own[0].job), min(tenure.begins for tenure in own), max(tenure.ends for tenure in own),
                held_percent / WHOLE / seconds,
            )  # fmt: skip


def _legend(rows: Sequence[LaneRow], looks: dict[str, str], is_closed: bool) -> tuple[LegendLine, ...]:
    """Returns the holders that had most, jobs as one, and how time is drawn in which plans kept off."""
    totals: dict[str, float] = defaultdict(float)
    for row in rows:
        totals["jobs" if row.is_job else row.name] += row.share
    names = sorted(totals, key=lambda name: (-totals[name], name))[:MOST_NAMED]
    lines = [LegendLine(looks.get(name, JOB), name, "") for name in names]
    return (*lines, *([LegendLine("closed", "kept free: cordoned or drained", "")] if is_closed else []))


def _sentence(rows: Sequence[LaneRow], gpus: Sequence[int]) -> str:
    sentences = []
    for gpu in gpus:
        held = sorted((row for row in rows if row.gpu == gpu), key=lambda row: -row.share)
        names = [f"{row.name} {percent(row.share, 0)}" for row in held[:MOST_TOLD]]
        sentences.append(f"GPU {gpu}: {', '.join(names) or 'nothing ran there'}")
    return f"Mean shares. {'; '.join(sentences)}."


def _box(left: float, right: float, low: float, height: float) -> str:
    return f"M{left:.1f} {low:.1f}v-{height:.1f}H{right:.1f}v{height:.1f}z"


def _name(tenure: GpuTenure) -> str:
    return f"{tenure.tenant}/{tenure.service or tenure.job}"


def _look(tenure: GpuTenure) -> str:
    return JOB if tenure.job else assign_hue(_name(tenure))


def _order(look: str) -> tuple[bool, str]:
    """Sorts the empty lanes below all bars, and frames above them."""
    return look != "bar empty", look
