"""OLTunes' claims O6, O7 and O9, computed from the results of its experiments."""

from __future__ import annotations

from collections.abc import Sequence

from lab.baselines.names import ORION
from lab.evaluate.claims import EvaluationClaim, PaperMeasure, ValueOfRun, claims_of
from lab.evaluate.measured import EvaluationResult
from solvers.planners.names import OLTUNES, RESERVE

PROFILES = (
    "Execution times and watts are derived, not printed (lab/testbeds/oltunes.yaml); Table 7's rates are multiplied by "
    "10, with bursts by 5."
)
SHARES = (
    "Orion schedules kernels; here it is a placement by shares, which keeps best effort from waiting for single "
    "kernels and favours Orion."
)
BURSTS = "Bursts of ours stand for Apollo's trace. All planners have cycles of 15 s."


def oltunes_claims(results: Sequence[EvaluationResult]) -> list[EvaluationClaim]:
    """Returns the claims; each value is the mean over the seeds."""
    return claims_of(results, _MEASURES)


def _measure(
    claim: str, metric: str, paper: float, baseline: str, note: str, **fields: bool
) -> PaperMeasure:  # fmt: skip
    return PaperMeasure(claim, metric, paper, baseline, OLTUNES, "scaled", f"{PROFILES} {note}", **fields)


def _read_rate(run: EvaluationResult) -> float:
    return run.mean("within_per_second")


_MEASURES: Sequence[tuple[str, PaperMeasure, ValueOfRun]] = (
    (
        "bursts",
        _measure(
            "O6", "loss of accuracy of the service that loses most, bursts, %", 4.0, RESERVE,
            "The limit is declared for every planner as meanAccuracy: the baselines mix no variants, and lose nothing.",
            is_limit=True,
        ),
        lambda run: run.accuracy_loss_percent,
    ),
    (
        "bursts",
        _measure(
            "O7", "power of all GPUs, bursts, W, reserve-and-pack to ours", 6.5, RESERVE,
            "The paper estimates power by (7); here each GPU draws its idle power, and what its instances add while "
            "busy. Idle power alone is 251 W.",
        ),
        lambda run: run.power_w,
    ),
    (
        "bursts",
        _measure("O7", "power of all GPUs, bursts, W, Orion to ours", 3.0, ORION, f"As above. {SHARES}"),
        lambda run: run.power_w,
    ),
    (
        "bursts",
        _measure(
            "O7", "standard deviation among all GPUs of their mean share of SMs at work, bursts, %", 10.0, RESERVE,
            "The joint planner fills few GPUs, so that others can be given back; it does not seek an even load.",
            is_limit=True,
        ),
        lambda run: run.utilisation_spread_percent,
    ),
    (
        "bursts",
        _measure("O9", "requests that miss their SLO, bursts, %, Orion to ours", 12.5, ORION, f"{BURSTS} {SHARES}"),
        lambda run: run.violations_percent,
    ),
    (
        "poisson",
        _measure(
            "O9", "requests that miss their SLO, Poisson, %, reserve-and-pack to ours", 12.5, RESERVE,
            "Arrivals at a steady rate.",
        ),
        lambda run: run.violations_percent,
    ),
    (
        "bursts",
        _measure("O9", "p99 latency of all answers, bursts, ms, Orion to ours", 1.96, ORION, f"{BURSTS} {SHARES}"),
        lambda run: run.p99_ms,
    ),
    (
        "poisson",
        _measure(
            "O9", "requests a second within the SLO, Poisson, ours to reserve-and-pack", 1.61, RESERVE,
            "Requests arrive by rates, so that none serves more than what comes.", is_more_better=True,
        ),
        _read_rate,
    ),
    (
        "bursts",
        _measure(
            "O9", "requests a second within the SLO, bursts, ours to reserve-and-pack", 1.61, RESERVE, BURSTS,
            is_more_better=True,
        ),
        _read_rate,
    ),
)  # fmt: skip
