"""The figures of HetSev's claims H4 and H5, computed from the results of its experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from statistics import fmean

from lab.evaluate.figures import RunsByPlanner, ValuesByPlanner, figure_of_each_run, figure_of_runs
from lab.evaluate.measured import EvaluationResult, EvaluationSample
from lab.evaluate.verdicts import MeasuredFigure
from solvers.planners.names import HETSEV, HPA, JOINT

WINDOW_SAMPLES = 4  # 120 s, over which the paper averages rates
SPIKE_SHARE = 0.5  # of the highest load; at less, the paper finds no difference


def hetsev_figures(results: Sequence[EvaluationResult]) -> dict[str, MeasuredFigure]:
    """Returns the figures that claims.yaml names."""
    return {
        "late": figure_of_each_run(results, "fluctuating", lambda run: run.violations_percent),
        "late on average": figure_of_each_run(results, "fluctuating", lambda run: run.mean("violations_percent")),
        "bill that differs most": figure_of_runs(results, "cost", lambda found: _largest_lead(_bills(found))),
        "mean bill": figure_of_runs(results, "cost", lambda found: _mean_share(_bills(found))),
        "held": figure_of_each_run(results, "cost", lambda run: run.mean("held_per_hour")),
        "response in production": _response(results, "production"),
        "response when saturated": _response(results, "saturated"),
        "use in production": _use(results, "production"),
        "use when saturated": _use(results, "saturated"),
        "served when saturated": figure_of_runs(
            results,
            "saturated",
            lambda found: _window_means(found, "within_per_second"),
            lambda found: _count_offered(found, "within_per_second"),
        ),
    }


def _use(results: Sequence[EvaluationResult], experiment: str) -> MeasuredFigure:
    """Returns the share of the fleet's SMs at work, of which all are the most."""
    return figure_of_runs(results, experiment, lambda found: _window_means(found, "utilisation"), lambda _: 1.0)


def _response(results: Sequence[EvaluationResult], experiment: str) -> MeasuredFigure:
    return figure_of_runs(results, experiment, lambda found: _window_means(found, "response_ms", is_more_better=False))


def _bills(found: RunsByPlanner) -> dict[str, dict[str, float]]:
    """Returns by planner the mean price an hour of each service's memory, in the paper's billing (section 6.3)."""
    bills = {}
    for planner, run in found.items():
        samples = [billed_memory(planner, sample) for sample in run.samples]
        bills[planner] = {name: fsum(sample[name] for sample in samples) / len(samples) for name in samples[0]}
    return bills


def billed_memory(planner: str, sample: EvaluationSample) -> Mapping[str, float]:
    """Returns the price of each service's memory: Kubernetes pays for all of its GPUs, others for what they use."""
    return sample.used_memory_by_service if planner in (HETSEV, JOINT) else sample.whole_memory_by_service


def _largest_lead(bills: Mapping[str, Mapping[str, float]]) -> ValuesByPlanner:
    service = max(bills[JOINT], key=lambda name: bills[HPA][name] / bills[JOINT][name])
    return {planner: found[service] for planner, found in bills.items()}


def _mean_share(bills: Mapping[str, Mapping[str, float]]) -> ValuesByPlanner:
    return {
        planner: fsum(found[name] / bills[HPA][name] for name in found) / len(found) for planner, found in bills.items()
    }


def _window_means(found: RunsByPlanner, name: str, *, is_more_better: bool = True) -> ValuesByPlanner:
    """Returns the means of the window of the spike in which the joint planner leads Kubernetes most."""
    window = _find_window(found, name, is_more_better)
    return {planner: _mean(run, name, window) for planner, run in found.items()}


def _count_offered(found: RunsByPlanner, name: str) -> float:
    return _mean(found[HPA], "asked_per_second", _find_window(found, name))


def _find_window(found: RunsByPlanner, name: str, is_more_better: bool = True) -> slice:
    asked = [sample.asked_per_second for sample in found[HPA].samples]
    windows = [slice(at, at + WINDOW_SAMPLES) for at in range(len(asked) - WINDOW_SAMPLES + 1)]
    spike = [window for window in windows if min(asked[window]) >= SPIKE_SHARE * max(asked)]
    leads = [_mean(found[JOINT], name, at) / max(_mean(found[HPA], name, at), 1e-9) for at in spike]
    return spike[leads.index(max(leads) if is_more_better else min(leads))]


def _mean(run: EvaluationResult, name: str, window: slice) -> float:
    return fmean(getattr(sample, name) for sample in run.samples[window])
