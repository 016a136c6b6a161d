"""Mudi's claims M9, computed from the results of its experiments."""

from __future__ import annotations

from collections.abc import Sequence

from lab.baselines.names import GPULET, GSLICE
from lab.evaluate.claims import EvaluationClaim, PaperMeasure, ValueOfRun, claims_of
from lab.evaluate.measured import EvaluationResult
from lab.evaluate.mudi.experiments import CLUSTER, SATURATED
from solvers.planners.names import MUDI

TESTBED = (
    "The slides print SLOs, models and trainings; times, rates and how long trainings take are derived "
    "(lab/testbeds/mudi.yaml), and a training takes a sixtieth of its time there. All wait from the start."
)
UP_TO = "The slides say 'up to', and not against which baseline."
COUNTED = "A training that is not done counts until the end of the run, which favours planners that finish few."


def mudi_claims(results: Sequence[EvaluationResult]) -> list[EvaluationClaim]:
    """Returns the claims; each value is the mean over the seeds."""
    return claims_of(results, _MEASURES)


def _measure(metric: str, paper: float, baseline: str, note: str, **fields: bool) -> PaperMeasure:
    return PaperMeasure("M9", metric, paper, baseline, MUDI, "scaled", f"{TESTBED} {note}", **fields)


_MEASURES: Sequence[tuple[str, PaperMeasure, ValueOfRun]] = (
    (
        CLUSTER,
        _measure("SLO violations, %", 0.5, GSLICE, "The small cluster's figure.", is_limit=True),
        lambda run: run.violations_percent,
    ),
    (
        CLUSTER,
        _measure("SLO violations, %, GSLICE to ours", 6.0, GSLICE, UP_TO),
        lambda run: run.violations_percent,
    ),
    (
        CLUSTER,
        _measure("completion time of trainings, s, GSLICE to ours", 2.27, GSLICE, f"{UP_TO} {COUNTED}"),
        lambda run: run.completion_seconds,
    ),
    (
        CLUSTER,
        _measure(
            "SMs at work, %, ours to GSLICE's", 1.37, GSLICE,
            "A training that runs keeps all its SMs at work, an instance those that its batches need.",
            is_more_better=True,
        ),
        lambda run: run.sms_at_work_percent,
    ),
    (
        SATURATED,
        _measure(
            "requests within SLO a second at three times the rates, ours to gpulet's", 2.03, GPULET,
            f"{UP_TO} The slides raise the load until an SLO is not kept; here each gets more than it can serve.",
            is_more_better=True,
        ),
        lambda run: run.mean("within_per_second"),
    ),
)  # fmt: skip
