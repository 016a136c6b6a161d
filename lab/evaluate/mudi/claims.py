"""The figures of Mudi's claims M9, computed from the results of its experiments."""

from __future__ import annotations

from collections.abc import Sequence

from lab.evaluate.figures import figure_of_each_run
from lab.evaluate.measured import EvaluationResult
from lab.evaluate.mudi.experiments import CLUSTER
from lab.evaluate.verdicts import MeasuredFigure


def mudi_figures(results: Sequence[EvaluationResult]) -> dict[str, MeasuredFigure]:
    """Returns the figures that claims.yaml names."""
    return {
        "late": figure_of_each_run(results, CLUSTER, lambda run: run.violations_percent),
        "completion": figure_of_each_run(results, CLUSTER, lambda run: run.completion_seconds),
        "SMs at work": figure_of_each_run(results, CLUSTER, lambda run: run.sms_at_work_percent, lambda _: 100.0),
    }
