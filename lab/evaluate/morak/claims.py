"""Morak's claim K5, from the results of its experiments: throughput, energy a request, both limits, and its charts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import fsum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.views.chart_files import make_plain, prepare_drawing, save_chart
from lab.evaluate.claims import EvaluationClaim, PaperMeasure
from lab.evaluate.morak.experiments import ENERGY_MS, NETWORKS, PLANNERS, THROUGHPUT_MS, MorakResult
from lab.evaluate.morak.laws import BATCH_DVFS, CLIPPER_L, CLIPPER_P, DFS, METHODS
from solvers.planners.names import MORAK

if TYPE_CHECKING:
    from lab.evaluate.morak.experiments import MorakResult


IMPROVED = {CLIPPER_L: 2.309, CLIPPER_P: 2.103, DFS: 1.677, BATCH_DVFS: 1.705}  # 130.9, 110.3, 67.7 and 70.5 % more
ENERGY_SAVED = dict(zip(NETWORKS, (0.498, 0.374, 0.502, 0.222), strict=True))  # of the best baseline
TRUTH = (
    "GoogLeNet's times and watts are printed for two settings (batch 64 on a whole GPU, four at batch 16 and 25 %) and "
    "fitted between them; the other networks' times are derived from their knees, and their watts are GoogLeNet's."
)
LIMITED = (
    "From GoogLeNet's printed figures alone sharing a GPU serves 1,860 instead of 1,600 requests a second, 1.16 times: "
    "no printed figure shows more. The batches and clocks of the paper's baselines are not printed."
)
SATURATED = (
    "Every instance has a full batch waiting, so that its latency is the time of a batch, as in the paper's equations. "
    "The joint planner's SLO includes waiting at the 98th percentile, so it plans shorter batches; that favours others."
)
COLOURS = {
    "clipper-l": "tab:gray", "clipper-p": "tab:olive", "dfs": "tab:brown", "batchdvfs": "tab:pink",
    "morak": "tab:orange", "joint": "tab:blue",
}  # fmt: skip
DRAWINGS = (
    ("throughput", 100.0, "whole_gpu_share", "requests a second, share of\nwhole uncapped GPUs; 150 W, 100 ms"),
    ("energy", 300.0, "joules_per_request", "joules a request, share of\nthe most; 150 W, 300 ms"),
)


def morak_claims(results: Sequence[MorakResult]) -> list[EvaluationClaim]:
    """Returns the claims; each value is the mean over the seeds, and over the networks where none is named."""

    def means(limit_ms: float, networks: Sequence[str], value: Callable[[MorakResult], float]) -> dict[str, float]:
        found = {}
        for planner in PLANNERS:
            own = [
                value(result)
                for result in results
                if result.planner == planner and result.limit_ms == limit_ms and result.network in networks
            ]
            found[planner] = fsum(own) / len(own)
        return found

    seeds = len({result.seed for result in results})
    claims = []
    shares = means(THROUGHPUT_MS, NETWORKS, lambda result: result.whole_gpu_share)
    for baseline, paper in IMPROVED.items():
        claims.append(EvaluationClaim(_throughput(baseline, paper), shares, seeds))
    for network, saved in ENERGY_SAVED.items():
        joules = means(ENERGY_MS, (network,), lambda result: result.joules_per_request)
        best = min(METHODS, key=lambda name: joules[name])
        claims.append(EvaluationClaim(_energy(network, best, 1 / (1 - saved)), joules, seeds))
    watts = means(THROUGHPUT_MS, NETWORKS, lambda result: result.over_cap_percent)
    claims.append(EvaluationClaim(_limit("a GPU drew more than 150 W, % of the seconds", CLIPPER_L), watts, seeds))
    late = means(THROUGHPUT_MS, NETWORKS, lambda result: result.over_limit_percent)
    claims.append(EvaluationClaim(_limit("a batch took more than 100 ms, % of the seconds", DFS), late, seeds))
    return claims


def _throughput(baseline: str, paper: float) -> PaperMeasure:
    metric = f"requests a second to {baseline}'s, 150 W, 100 ms (share of whole uncapped GPUs at the largest batch)"
    note = f"{TRUTH} {SATURATED} {LIMITED} Mean of four networks."
    return PaperMeasure("K5", metric, paper, baseline, MORAK, "scaled", note, is_more_better=True)


def _energy(network: str, best: str, paper: float) -> PaperMeasure:
    note = (
        f"{TRUTH} {SATURATED} The paper's baseline is its best, here {best}; that its percentages are in the order of "
        "its networks is assumed."
    )
    truth = "printed" if network == "googlenet" else "scaled"
    return PaperMeasure(
        "K5", f"joules a request of {network}; 150 W, 300 ms", round(paper, 3), best, MORAK, truth, note
    )


def _limit(metric: str, baseline: str) -> PaperMeasure:
    note = f"{TRUTH} The paper says that both limits are kept. True values count, not readings, after 180 s."
    return PaperMeasure("K5", f"{metric}; 150 W, 100 ms", 0.0, baseline, MORAK, "scaled", note, is_limit=True)


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
