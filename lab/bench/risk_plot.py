"""Draws `gpuwright bench risk`: missed hours and headroom against the risk that was asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.views.chart_files import prepare_drawing


def draw(rows: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draws two panels with a line for each load."""
    prepare_drawing()
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(11, 4.2))
    risks = sorted({row["risk"] for row in rows})
    limits = {row["risk"]: 100 * row["chance_limit"] for row in rows}
    asked = [100 * risk for risk in risks]
    panels[0].plot(asked, asked, color="black", linewidth=0.8, linestyle=":", label="asked")
    panels[0].plot(asked, [limits[risk] for risk in risks], color="gray", linewidth=0.8, linestyle="--", label="95 %")
    for load in dict.fromkeys(row["load"] for row in rows):
        points = sorted((row["risk"], row["missed"], row["headroom"]) for row in rows if row["load"] == load)
        for axes, place in zip(panels, (1, 2), strict=True):
            axes.plot(asked, [100 * point[place] for point in points], marker="o", label=load)
    for axes, label in zip(panels, ("hours that spend half their budget, %", "planned above the load, %"), strict=True):
        axes.set(xscale="log", xlabel="risk asked for, %", ylabel=label, ylim=(0, None))
        axes.set_xticks(asked, [f"{risk:g}" for risk in asked])
        axes.minorticks_off()
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)
