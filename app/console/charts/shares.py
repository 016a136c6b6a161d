"""Draws how long a batch takes by its share of a GPU, with what was measured, the SLO and what is planned. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from app.console.charts.drawing import (
    LEFT,
    RIGHT,
    RING,
    ChartDrawing,
    LegendLine,
    draw_dots,
    draw_line,
    draw_ring,
    place_x,
    place_y,
)
from app.console.charts.scales import ValueAxis, value_axis
from app.console.wording import number
from app.control.answer.explain.profile import ProfileExplanationWire, ProfilePointWire
from solvers.planning.wire import PlanInstanceWire

LOOKS = ("t0", "t3", "t4", "t5", "t6", "t2")  # of batches; t1 is the promise
MEASURED_SOURCES = ("learned", "measured")
ROOM = 1.3  # of the highest of what matters: slower points are left out
SHARES = (0, 20, 40, 60, 80, 100)


@dataclass(frozen=True, slots=True)
class ShareFigure:
    """A Profile drawn, with the points that it is drawn from."""

    profile: str
    drawing: ChartDrawing
    points: Sequence[ProfilePointWire]


def draw_shares(
    profile: ProfileExplanationWire, instances: Sequence[PlanInstanceWire], slo_ms: float
) -> ShareFigure | None:
    """Draws a Profile with the instances that are planned by it; None where it states no times of batches."""
    points = profile["regions"]
    if not points:
        return None
    chosen = [line["predicted"] for line in instances]
    most = ROOM * max([slo_ms, *(times["latencyMs"] for times in chosen)])
    axis = value_axis([slo_ms, *(min(point["plannedMs"], most) for point in points)], 0.0, None)
    by_batch = {batch: list(line) for batch, line in groupby(points, lambda point: point["batch"])}
    looks = dict(zip(by_batch, (LOOKS[at % len(LOOKS)] for at in range(len(by_batch))), strict=True))
    paths = [(f"line {looks[batch]}", _draw_batch(line, axis)) for batch, line in by_batch.items()]
    paths += [(f"points {looks[batch]}", _draw_dots(line, axis)) for batch, line in by_batch.items()]
    slo = _y(axis, slo_ms)
    paths += [("line t1", f"M{LEFT:.0f} {slo:.1f}H{RIGHT:.0f}"), ("ring", "".join(_draw_rings(instances, axis)))]
    drawing = ChartDrawing(
        id=f"share-{profile['profile']}", title=f"{profile['variant']} on {profile['gpuType']}",
        unit="milliseconds a batch, by its share of the SMs", note="", sentence=_sentence(by_batch, instances, slo_ms),
        is_empty=False, is_stacked=False,
        value_ticks=tuple((round(_y(axis, tick), 1), axis.label(tick)) for tick in axis.ticks),
        time_ticks=tuple((_x(share), f"{share} %") for share in SHARES),
        paths=tuple(path for path in paths if path[1]),
        legend=(
            *(LegendLine(looks[batch], f"batch {batch}", _spell_measured(line)) for batch, line in by_batch.items()),
            LegendLine("t1", "SLO", f"{number(slo_ms)} ms"),
        ),
    )  # fmt: skip
    return ShareFigure(profile["profile"], drawing, points)


def _draw_batch(line: Sequence[ProfilePointWire], axis: ValueAxis) -> str:
    """Draws a batch as far as its points lie in the picture."""
    inside = [point for point in line if point["plannedMs"] <= axis.high]
    return draw_line([(_x(point["smPercent"]), _y(axis, point["plannedMs"])) for point in inside])


def _draw_dots(line: Sequence[ProfilePointWire], axis: ValueAxis) -> str:
    measured = [point for point in line if point["source"] in MEASURED_SOURCES and point["plannedMs"] <= axis.high]
    return draw_dots([(_x(point["smPercent"]), _y(axis, point["plannedMs"])) for point in measured])


def _draw_rings(instances: Sequence[PlanInstanceWire], axis: ValueAxis) -> Iterator[str]:
    """Rings the batch of each instance; a stem leads up to the answer's latency, which the wait is added to."""
    for sm, execution, latency in sorted({_read_times(line) for line in instances}):
        x, y = _x(sm), _y(axis, execution)
        yield draw_ring((x, y))
        yield f"M{x:.1f} {y - RING:.1f}V{_y(axis, latency):.1f}m-{RING} 0h{2 * RING}"


def _read_times(line: PlanInstanceWire) -> tuple[float, float, float]:
    return line["smPercent"], line["predicted"]["execMs"], line["predicted"]["latencyMs"]


def _sentence(
    by_batch: dict[int, list[ProfilePointWire]], instances: Sequence[PlanInstanceWire], slo_ms: float
) -> str:  # fmt: skip
    lines = [
        f"batch {batch}: {number(line[0]['plannedMs'])} ms at {line[0]['smPercent']:g} % of the SMs to "
        f"{number(line[-1]['plannedMs'])} ms at {line[-1]['smPercent']:g} %"
        for batch, line in by_batch.items()
    ]
    planned = sorted({(line["batch"], *_read_times(line)) for line in instances})
    lines += [
        f"planned: batch {batch} at {sm:g} %, {number(execution)} ms, answers in {number(latency)} ms"
        for batch, sm, execution, latency in planned
    ]
    return f"SLO {number(slo_ms)} ms. {'; '.join(lines)}."


def _spell_measured(line: Sequence[ProfilePointWire]) -> str:
    measured = sum(point["source"] in MEASURED_SOURCES for point in line)
    return f"{measured} of {len(line)} points measured" if measured else ""


def _x(sm_percent: float) -> float:
    return place_x(sm_percent / 100)


def _y(axis: ValueAxis, ms: float) -> float:
    return place_y(axis.place(ms))
