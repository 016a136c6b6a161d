"""Turns runs of a fleet into the figures that claims are about: by seed and planner, with price and attainment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import TypeAlias

from lab.evaluate.measured import EvaluationResult
from lab.evaluate.verdicts import MeasuredFigure, PlannerValue

RunsByPlanner: TypeAlias = Mapping[str, EvaluationResult]  # of one experiment and seed
ValuesByPlanner: TypeAlias = Mapping[str, float]
ValueOfRun: TypeAlias = Callable[[EvaluationResult], float]


def figure_of_runs(
    results: Sequence[EvaluationResult],
    experiment: str,
    values: Callable[[RunsByPlanner], ValuesByPlanner],
    best_possible: Callable[[RunsByPlanner], float] | None = None,
) -> MeasuredFigure:
    """Returns a figure of an experiment's runs, computed for each seed of the runs of all planners."""
    by_seed = runs_by_seed(results, experiment)
    best = fmean(map(best_possible, by_seed)) if best_possible and by_seed else None
    return MeasuredFigure([_add_prices(found, values(found)) for found in by_seed], best)


def figure_of_each_run(
    results: Sequence[EvaluationResult], experiment: str, value: ValueOfRun,
    best_possible: Callable[[RunsByPlanner], float] | None = None,
) -> MeasuredFigure:  # fmt: skip
    """Returns a figure that each run has for itself."""
    return figure_of_runs(
        results, experiment, lambda found: {name: value(run) for name, run in found.items()}, best_possible
    )


def runs_by_seed(results: Sequence[EvaluationResult], experiment: str) -> list[dict[str, EvaluationResult]]:
    """Returns the runs of an experiment by planner, for each seed."""
    found: dict[int, dict[str, EvaluationResult]] = defaultdict(dict)
    for result in results:
        if result.experiment == experiment:
            found[result.seed][result.planner] = result
    return [found[seed] for seed in sorted(found)]


def read_offered(found: RunsByPlanner) -> float:
    """Returns the requests a second that came: no planner could have served more."""
    return max(run.mean("asked_per_second") for run in found.values())


def _add_prices(found: RunsByPlanner, values: ValuesByPlanner) -> dict[str, PlannerValue]:
    return {
        name: PlannerValue(value, found[name].mean("held_per_hour"), 1 - found[name].violations_percent / 100)
        for name, value in values.items()
    }
