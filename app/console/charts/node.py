"""The charts of a node: load, memory, power, heat and clocks of each GPU, and minutes in which one ailed. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from app.console.charts.drawing import TimeChart, TimeSeries
from app.console.wording import number, percent, words
from app.store.fleet.gpu_points import AilingPoint, GpuPoint

MOST_LINES = 8  # of GPUs that can be told apart
MOST_REASONS = 7
OTHERS = "others"


def node_charts(
    begins: Sequence[datetime], step: timedelta, points: Sequence[GpuPoint], ailing: Sequence[AilingPoint]
) -> list[TimeChart]:  # fmt: skip
    """Returns the charts of a node's page."""

    def chart(id_: str, title: str, unit: str, read: Callable[[GpuPoint], float]) -> TimeChart:
        return TimeChart(id_, title, unit, begins, step, _draw_gpus(begins, points, read))

    busy = chart("busy", "Busy", "% of time", lambda point: point.busy)
    temperature = chart("temperature", "Temperature", "°C, the highest of a step", lambda point: point.temperature_c)
    return [
        replace(busy, top=100.0, write=percent, scale=100.0),
        chart("memory", "Memory in use", "GiB", lambda point: point.memory_gib),
        chart("power", "Power", "W", lambda point: point.power_w),
        replace(temperature, floor=None),
        chart("clocks", "SM clock", "MHz", lambda point: point.clock_mhz),
        _draw_ailing(begins, step, points, ailing),
    ]


def _draw_gpus(
    begins: Sequence[datetime], points: Sequence[GpuPoint], read: Callable[[GpuPoint], float]
) -> list[TimeSeries]:  # fmt: skip
    """Draws a line for each GPU; of more than can be told apart the highest and the lowest."""
    values: dict[int, dict[datetime, float]] = {}
    for point in points:
        values.setdefault(point.gpu, {})[point.begins] = read(point)
    if len(values) <= MOST_LINES:
        return [
            TimeSeries(f"GPU {gpu}", [known.get(begin) for begin in begins], f"t{at}")
            for at, (gpu, known) in enumerate(sorted(values.items()))
        ]
    steps = [[known[begin] for known in values.values() if begin in known] for begin in begins]
    return [
        TimeSeries("Highest of its GPUs", [max(found, default=None) for found in steps], "t0"),
        TimeSeries("Lowest of its GPUs", [min(found, default=None) for found in steps], "t1"),
    ]


def _draw_ailing(
    begins: Sequence[datetime], step: timedelta, points: Sequence[GpuPoint], ailing: Sequence[AilingPoint]
) -> TimeChart:  # fmt: skip
    """Draws bars of the reasons; a step in which nothing ailed has a known height of nothing."""
    minutes: dict[str, int] = {}
    for point in ailing:
        minutes[point.reason] = minutes.get(point.reason, 0) + point.minutes
    names = sorted(minutes, key=lambda reason: (-minutes[reason], reason))
    named = names if len(names) <= MOST_REASONS else names[: MOST_REASONS - 1]
    found: dict[tuple[str, datetime], float] = {}
    for point in ailing:
        key = point.reason if point.reason in named else OTHERS, point.begins
        found[key] = found.get(key, 0.0) + point.minutes
    known = {point.begins for point in points}
    shown = [*named, *([OTHERS] if len(named) < len(names) else [])] or ["none"]
    series = [
        TimeSeries(
            words(reason), [found.get((reason, begin), 0.0 if begin in known else None) for begin in begins], f"t{at}"
        )
        for at, reason in enumerate(shown)
    ]
    return TimeChart(
        "ailing", "Unhealthy or throttled", "minutes of GPUs, by reason", begins, step, series, is_stacked=True,
        write=number,
    )  # fmt: skip
