"""A report as a picture: stacked bars over time for what adds up, lines for shares, bars where there is no time."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cli.exits import Failed
from cli.views.chart_files import prepare_drawing, save_chart

MOST_NAMES = 9  # drawn separately; the rest is summed up
SHARES = frozenset(("attainment", "utilisation", "allocatedShare", "smUtilisation"))
OTHERS = "others"


def refuse_without_matplotlib(flag: str) -> None:
    """Refuses a flag that draws where its library is missing."""
    if find_spec("matplotlib") is None:
        raise Failed(f"{flag} needs matplotlib, which is not installed: pip install matplotlib")


def draw(report: Mapping[str, Any], figure: str, file: Path) -> None:
    """Draw `figure` of a report, or its last one."""
    refuse_without_matplotlib("--chart")
    items = list(report["items"])
    if not items:
        raise Failed("the report is empty for that time, so there is nothing to draw")
    if not figure:
        figure = [key for key in items[0] if key not in ("name", "start", "properties")][-1]
    prepare_drawing()
    from matplotlib import pyplot

    values: dict[tuple[str, str], float] = {}
    for item in items:
        if item[figure] is not None:
            values[item["name"], item.get("start", "")[:16]] = float(item[figure])
    canvas, axes = pyplot.subplots(figsize=(10, 4.5))
    times = sorted({start for _, start in values})
    if times == [""]:
        _bars(axes, values)
    else:
        _draw_over_time(axes, values, times, stacked=figure not in SHARES)
    unit = f" ({report['currency']})" if "ost" in figure or figure == "saved" else ""
    axes.set_title(f"{report['report']}: {figure}{unit}, {report['timeZone']}", loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    save_chart(canvas, file)


def _bars(axes: Any, values: Mapping[tuple[str, str], float]) -> None:
    ranked = sorted(((value, name) for (name, _), value in values.items()), reverse=True)[: 2 * MOST_NAMES]
    axes.barh([name for _, name in reversed(ranked)], [value for value, _ in reversed(ranked)], color="tab:blue")
    axes.grid(visible=True, axis="x", alpha=0.3)


def _draw_over_time(axes: Any, values: Mapping[tuple[str, str], float], times: list[str], *, stacked: bool) -> None:
    sums: dict[str, float] = {}
    for (name, _), value in values.items():
        sums[name] = sums.get(name, 0.0) + value
    shown = sorted(sums, key=lambda name: -sums[name])[:MOST_NAMES]
    is_daily = len({moment[11:] for moment in times}) == 1
    labels = [time[:10] if is_daily else time.replace("T", " ") for time in times]
    if stacked:
        floor = [0.0] * len(times)
        rest = [sum(v for (name, t), v in values.items() if t == time and name not in shown) for time in times]
        series = [(name, [values.get((name, time), 0.0) for time in times]) for name in shown]
        for name, heights in [*series, *([(OTHERS, rest)] if len(sums) > len(shown) else [])]:
            axes.bar(labels, heights, bottom=floor, label=name, width=0.8)
            floor = [low + high for low, high in zip(floor, heights, strict=True)]
    else:
        for name in shown:
            axes.plot(labels, [values.get((name, time)) for time in times], marker=".", label=name)
    step = max(1, len(labels) // 12)
    axes.set_xticks(range(0, len(labels), step), labels[::step], rotation=30, ha="right", fontsize=8)
    axes.grid(visible=True, axis="y", alpha=0.3)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
