"""Compares the claims of a paper with what was measured here: each holds, or does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum, inf
from typing import Any, TypeAlias

from lab.evaluate.measured import EvaluationResult
from solvers.planners.names import JOINT

DIGITS = 6
ValueOfRun: TypeAlias = Callable[[EvaluationResult], float]


@dataclass(frozen=True, slots=True)
class PaperMeasure:
    """A figure that a paper states, with its baseline, its planner, and the origin of its testbed's times."""

    id: str
    metric: str
    paper: float
    paper_baseline: str
    paper_planner: str
    truth: str  # printed, measured or scaled
    note: str
    is_more_better: bool = False
    is_limit: bool = False  # the paper states a value that is not exceeded, or reached where more is better: no ratio


@dataclass(frozen=True, slots=True)
class EvaluationClaim:
    """A measure with its values by planner, each a mean over the seeds."""

    measure: PaperMeasure
    values: Mapping[str, float]
    seeds: int

    @property
    def ratio(self) -> float:
        """Returns the paper's own baseline to ours, inverted where more is better: above 1, ours is better."""
        baseline, ours = self.values[self.measure.paper_baseline], self.values[JOINT]
        above, below = (ours, baseline) if self.measure.is_more_better else (baseline, ours)
        return above / below if below else inf

    @property
    def best_baseline(self) -> float:
        """Returns the best value of a planner that is neither ours nor the paper's."""
        others = [value for name, value in self.values.items() if name not in (JOINT, self.measure.paper_planner)]
        return max(others) if self.measure.is_more_better else min(others)

    @property
    def holds(self) -> bool:
        """Returns whether ours reaches the paper's figure, and is no worse than the best baseline."""
        ours, best = self.values[JOINT], self.best_baseline
        is_best = ours >= best if self.measure.is_more_better else ours <= best
        return is_best and (self._is_within_limit if self.measure.is_limit else self.ratio >= self.measure.paper)

    @property
    def _is_within_limit(self) -> bool:
        ours, limit = self.values[JOINT], self.measure.paper
        return ours >= limit if self.measure.is_more_better else ours <= limit

    def figures(self) -> dict[str, Any]:
        """Returns the claim as the JSON has it; a ratio without a finite value is null."""
        measure = self.measure
        return {
            "id": measure.id,
            "metric": measure.metric,
            "paper": measure.paper,
            "reproduced": round(self.values[measure.paper_planner], DIGITS),
            "best_baseline": round(self.best_baseline, DIGITS),
            "ours": round(self.values[JOINT], DIGITS),
            "paper_baseline": round(self.values[measure.paper_baseline], DIGITS),
            "ratio": None if self.ratio == inf else round(self.ratio, DIGITS),
            "holds": self.holds,
            "truth": measure.truth,
            "seeds": self.seeds,
            "note": measure.note,
        }


def claims_of(
    results: Sequence[EvaluationResult], measures: Sequence[tuple[str, PaperMeasure, ValueOfRun]]
) -> list[EvaluationClaim]:
    """Returns a claim for each measure of an experiment; each value is the mean over the seeds."""
    runs: dict[str, dict[str, list[EvaluationResult]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        runs[result.experiment][result.planner].append(result)

    def claim(experiment: str, measure: PaperMeasure, value: ValueOfRun) -> EvaluationClaim:
        found = runs[experiment]
        means = {planner: fsum(map(value, mine)) / len(mine) for planner, mine in found.items()}
        return EvaluationClaim(measure, means, len(next(iter(found.values()))))

    return [claim(experiment, measure, value) for experiment, measure, value in measures]
