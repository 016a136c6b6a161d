"""Draws `gpuwright bench power`: the sweep of the bands, how limits are kept, and a step of the load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cli.views.chart_files import prepare_drawing

COLOURS = {"ours": "tab:blue", "printed": "tab:orange", "plan": "tab:gray"}
LINES = (":", "--", "-", "-.")
Rows = Sequence[Mapping[str, Any]]


def draw(rows: Rows, setpoints: Mapping[str, Rows], traces: Mapping[str, Rows], file: Path) -> None:
    """Draws six panels."""
    prepare_drawing()
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 3, figsize=(13, 7.5))
    _sweep(panels[0][0], rows, "cap_violations", "over the cap, % of periods", 100)
    _sweep(panels[0][1], rows, "slo_violations", "instances over their SLO, % of periods", 100)
    _sweep(panels[0][2], rows, "joules_per_request", "joules a request", 1)
    _limit(panels[1][0], setpoints, "cap", "peak_w", "power cap, W", "peak power, W")
    _limit(panels[1][1], setpoints, "slo", "latency_ms", "latency limit, ms", "latency, ms")
    _step(panels[1][2], traces)
    for row in panels:
        for axes in row:
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize=6)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})
    pyplot.close(figure)


def _sweep(axes: Any, rows: Rows, figure: str, label: str, times: float) -> None:
    betas = sorted({row["beta"] for row in rows if row["beta"] is not None})
    for law in ("ours", "printed"):
        for beta, line in zip(betas, LINES, strict=False):
            found = [row for row in rows if row["law"] == law and row["beta"] == beta]
            points = sorted((row["alpha"], times * row[figure]) for row in found)
            axes.plot(*zip(*points, strict=True), line, color=COLOURS[law], marker=".", label=f"{law}, beta {beta:g}")
    for row in rows:
        if row["law"] == "plan":
            axes.plot([], [], " ", label=f"plan, unmoved: {times * row[figure]:.3g}")  # far outside, but for the last
    axes.set(xlabel="alpha", ylabel=label)


def _limit(axes: Any, setpoints: Mapping[str, Rows], limit: str, figure: str, name: str, label: str) -> None:
    for law in ("ours", "printed"):
        points = [(row["limit"], row[figure]) for row in setpoints[f"{law} {limit}"]]
        axes.plot(*zip(*points, strict=True), color=COLOURS[law], marker=".", label=law)
    ends = [points[0][0], points[-1][0]]
    axes.plot(ends, ends, color="black", linewidth=0.8, linestyle=":", label="the limit itself")
    axes.set(xlabel=name, ylabel=label)


def _step(axes: Any, traces: Mapping[str, Rows]) -> None:
    for law, trace in traces.items():
        axes.plot([row["second"] for row in trace], [row["peak_w"] for row in trace], color=COLOURS[law], label=law)
    axes.axhline(traces["ours"][0]["cap_w"], color="black", linewidth=0.8, linestyle=":", label="cap")
    axes.set(xlabel="seconds; more load from 20 to 90", ylabel="peak power, W")
