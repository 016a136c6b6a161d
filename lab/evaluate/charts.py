"""Draws what an evaluation measured, as the papers draw theirs: over time by planner, and bars by service."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.views.chart_files import make_plain, prepare_drawing, save_chart

if TYPE_CHECKING:
    from lab.evaluate.measured import EvaluationResult

COLOURS = {
    "joint": "tab:blue",
    "hetsev": "tab:orange",
    "inss": "tab:red",
    "oltunes": "tab:green",
    "hpa": "tab:gray",
    "hpa-cheapest": "tab:olive",
    "gpulet": "tab:cyan",
    "gslice": "tab:pink",
    "igniter": "tab:brown",
    "orion": "tab:purple",
    "reserve-and-pack": "tab:brown",
}
PANELS = (
    ("within_per_second", "requests a second\nwithin the SLO"),
    ("violations_percent", "SLO missed, %"),
    ("utilisation", "SMs of the fleet\nat work"),
    ("instances", "instances"),
    ("held_per_hour", "held an hour"),
)


def draw_evaluation(results: Sequence[EvaluationResult], folder: Path) -> list[str]:
    """Draws each experiment's first seed over time, and the bills of "cost"; returns the names without endings."""
    prepare_drawing()
    names = []
    for experiment in dict.fromkeys(result.experiment for result in results):
        runs = [result for result in results if result.experiment == experiment]
        first = min(run.seed for run in runs)
        names.append(experiment)
        save_chart(_draw_course([run for run in runs if run.seed == first], experiment), folder / experiment)
        if experiment == "cost":
            names.append("cost-by-service")
            save_chart(_draw_bills(runs), folder / "cost-by-service")
    return names


def _draw_course(runs: Sequence[EvaluationResult], title: str) -> Any:
    from matplotlib import pyplot

    canvas, panels = pyplot.subplots(len(PANELS), figsize=(9, 11), sharex=True)
    for axes, (field, label) in zip(panels, PANELS, strict=True):
        for run in runs:
            values = [getattr(sample, field) for sample in run.samples]
            axes.plot([s.at for s in run.samples], values, label=run.planner, color=COLOURS.get(run.planner), lw=1.2)
        axes.set_ylabel(label, fontsize=8)
        axes.set_ylim(bottom=0)
        make_plain(axes)
    panels[0].legend(fontsize=8, frameon=False, ncols=4)
    panels[0].set_title(f"{title}, seed {runs[0].seed}", loc="left", fontsize=10)
    panels[-1].set_xlabel("seconds")
    return canvas


def _draw_bills(runs: Sequence[EvaluationResult]) -> Any:
    """Draws figure 7: each service's bill, as a share of the largest."""
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(9, 4))
    planners = list(dict.fromkeys(run.planner for run in runs))
    services = list(runs[0].samples[0].used_memory_by_service)
    width = 0.8 / len(planners)
    bills = {planner: [_bill(runs, planner, service) for service in services] for planner in planners}
    most = [max(found[at] for found in bills.values()) for at in range(len(services))]
    for number, planner in enumerate(planners):
        shares = [bill / largest for bill, largest in zip(bills[planner], most, strict=True)]
        places = [at + (number - (len(planners) - 1) / 2) * width for at in range(len(services))]
        axes.bar(places, shares, width, label=planner, color=COLOURS.get(planner))
    axes.set_xticks(range(len(services)), services)
    axes.set_ylabel("GPU memory billed,\nshare of the largest", fontsize=8)
    axes.legend(fontsize=8, frameon=False, ncols=4)
    make_plain(axes)
    return canvas


def _bill(runs: Sequence[EvaluationResult], planner: str, service: str) -> float:
    from lab.evaluate.hetsev.claims import billed_memory

    bills = [
        billed_memory(planner, sample)[service] for run in runs if run.planner == planner for sample in run.samples
    ]
    return fsum(bills) / len(bills)
