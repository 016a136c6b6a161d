"""The figures of Morak's claim K5: throughput, energy a request and both limits, and its charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import fsum
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from cli.views.chart_files import make_plain, prepare_drawing, save_chart
from lab.evaluate.morak.experiments import ENERGY_MS, NETWORKS, PLANNERS, THROUGHPUT_MS, MorakResult
from lab.evaluate.verdicts import MeasuredFigure, PlannerValue

if TYPE_CHECKING:
    from lab.evaluate.morak.experiments import MorakResult

COLOURS = {
    "clipper-l": "tab:gray", "clipper-p": "tab:olive", "dfs": "tab:brown", "batchdvfs": "tab:pink",
    "morak": "tab:orange", "joint": "tab:blue",
}  # fmt: skip
DRAWINGS = (
    ("throughput", 100.0, "whole_gpu_share", "requests a second, share of\nwhole uncapped GPUs; 150 W, 100 ms"),
    ("energy", 300.0, "joules_per_request", "joules a request, share of\nthe most; 150 W, 300 ms"),
)


def morak_figures(results: Sequence[MorakResult]) -> dict[str, MeasuredFigure]:
    """Returns the figures that claims.yaml names: means over the networks where none is named."""
    throughput = partial(_figure, results, THROUGHPUT_MS, NETWORKS)
    joules = {
        f"joules of {network}": _figure(results, ENERGY_MS, (network,), lambda result: result.joules_per_request)
        for network in NETWORKS
    }
    return {
        "throughput": throughput(lambda result: result.whole_gpu_share),
        "over the cap": throughput(lambda result: result.over_cap_percent),
        "over the limit": throughput(lambda result: result.over_limit_percent),
        **joules,
    }


def _figure(
    results: Sequence[MorakResult], limit_ms: float, networks: Sequence[str], value: Callable[[MorakResult], float]
) -> MeasuredFigure:
    """Returns a figure of the runs at a limit; the share of seconds in which both limits hold is what is attained."""

    def read_value(seed: int, planner: str) -> PlannerValue:
        own = [
            result
            for result in results
            if (result.seed, result.planner, result.limit_ms) == (seed, planner, limit_ms)
            and result.network in networks
        ]
        broken = fmean(max(result.over_cap_percent, result.over_limit_percent) for result in own)
        return PlannerValue(fmean(map(value, own)), attained_share=1 - broken / 100)

    seeds = sorted({result.seed for result in results})
    return MeasuredFigure([{planner: read_value(seed, planner) for planner in PLANNERS} for seed in seeds])


def draw_morak(results: Sequence[MorakResult], folder: Path) -> list[str]:
    """Draws both figures, means over the seeds; returns their names without endings."""
    prepare_drawing()
    for name, limit_ms, field, label in DRAWINGS:
        runs = [result for result in results if result.limit_ms == limit_ms]
        save_chart(_bars(runs, field, label, is_share=name == "energy"), folder / name)
    return [name for name, *_ in DRAWINGS]


def _bars(runs: Sequence[MorakResult], field: str, label: str, *, is_share: bool) -> Any:
    from matplotlib import pyplot

    canvas, axes = pyplot.subplots(figsize=(9, 4))
    networks = list(dict.fromkeys(run.network for run in runs))
    planners = [name for name in COLOURS if any(run.planner == name for run in runs)]
    values = {
        (planner, network): _mean(
            [getattr(run, field) for run in runs if (run.planner, run.network) == (planner, network)]
        )
        for planner in planners
        for network in networks
    }
    most = {network: max(values[planner, network] for planner in planners) for network in networks}
    width = 0.8 / len(planners)
    for number, planner in enumerate(planners):
        heights = [values[planner, network] / (most[network] if is_share else 1.0) for network in networks]
        places = [at + (number - (len(planners) - 1) / 2) * width for at in range(len(networks))]
        axes.bar(places, heights, width, label=planner, color=COLOURS[planner])
    axes.set_xticks(range(len(networks)), networks)
    axes.set_ylabel(label, fontsize=8)
    axes.legend(fontsize=8, frameon=False, ncols=6)
    make_plain(axes)
    return canvas


def _mean(values: Sequence[float]) -> float:
    return fsum(values) / max(1, len(values))
