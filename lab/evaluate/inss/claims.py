"""The figures of InSS's claims I6 that its experiments measure."""

from __future__ import annotations

from collections.abc import Sequence

from lab.evaluate.figures import figure_of_each_run, read_offered
from lab.evaluate.inss.experiments import HEAVY, PLANNED, SATURATED
from lab.evaluate.measured import EvaluationResult
from lab.evaluate.verdicts import MeasuredFigure


def inss_figures(results: Sequence[EvaluationResult]) -> dict[str, MeasuredFigure]:
    """Returns the figures that claims.yaml names."""
    return {
        "late": figure_of_each_run(results, PLANNED, lambda run: run.violations_percent),
        "served by six": _served(results, SATURATED),
        "served by eight": _served(results, HEAVY),
    }


def _served(results: Sequence[EvaluationResult], experiment: str) -> MeasuredFigure:
    return figure_of_each_run(results, experiment, lambda run: run.mean("within_per_second"), read_offered)
