"""Draws the error of latency curves against the number of measurements, with that of the baselines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

AIM_PERCENT = 4.0
OURS = "fitted curve"


def draw(rows: Sequence[Mapping[str, Any]], most: int, file: Path) -> None:
    """Draws a panel for each table; a row without a number in its name is that of `most` measurements."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    tables = errors_by_count(rows, most)
    figure, panels = pyplot.subplots(1, len(tables), figsize=(5.5 * len(tables), 4.5), squeeze=False)
    for axes, (name, lines) in zip(panels[0], tables.items(), strict=True):
        for label, points in lines.items():
            counts, errors = zip(*sorted(points.items()), strict=True)
            width = 2.2 if label == OURS else 1.0
            axes.plot(counts, errors, marker=".", linewidth=width, label=label)
        axes.axhline(AIM_PERCENT, color="black", linewidth=0.8, linestyle=":")
        axes.set(xscale="log", yscale="log", xlabel="measurements", ylabel="mean error on the others, %", title=name)
        ticks = sorted({count for points in lines.values() for count in points})
        axes.set_xticks(ticks, [str(count) for count in ticks])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter("{x:g}")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(file, dpi=120)
    pyplot.close(figure)


def errors_by_count(rows: Sequence[Mapping[str, Any]], most: int) -> dict[str, dict[str, dict[int, float]]]:
    """Returns table -> predictor -> number of measurements -> error, from rows named `latency.TABLE[.COUNT]`."""
    tables: dict[str, dict[str, dict[int, float]]] = {}
    for row in rows:
        topic, _, rest = row["what"].partition(".")
        table, _, count = rest.partition(".")
        if topic != "latency" or (count and not count.isdigit()):
            continue
        lines = tables.setdefault(table, {})
        for label, error in {OURS: row["ours"], **row["baselines"]}.items():
            lines.setdefault(label, {})[int(count or most)] = error
    return tables
