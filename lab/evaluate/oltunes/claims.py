"""The figures of OLTunes' claims O6, O7 and O9, computed from the results of its experiments."""

from __future__ import annotations

from collections.abc import Sequence

from lab.evaluate.figures import figure_of_each_run, read_offered
from lab.evaluate.measured import EvaluationResult
from lab.evaluate.oltunes.experiments import BURSTS, POISSON, RAISED
from lab.evaluate.verdicts import MeasuredFigure


def oltunes_figures(results: Sequence[EvaluationResult]) -> dict[str, MeasuredFigure]:
    """Returns the figures that claims.yaml names."""
    return {
        "accuracy loss": figure_of_each_run(results, BURSTS, lambda run: run.accuracy_loss_percent),
        "watts": figure_of_each_run(results, BURSTS, lambda run: run.power_w),
        "estimated power": figure_of_each_run(results, BURSTS, lambda run: run.estimated_power_w),
        "spread": figure_of_each_run(results, BURSTS, lambda run: run.utilisation_spread_percent),
        "late in bursts": figure_of_each_run(results, BURSTS, lambda run: run.violations_percent),
        "late": figure_of_each_run(results, POISSON, lambda run: run.violations_percent),
        "p99": figure_of_each_run(results, BURSTS, lambda run: run.p99_ms),
        "served in bursts": figure_of_each_run(
            results, RAISED, lambda run: run.mean("within_per_second"), read_offered
        ),
    }
