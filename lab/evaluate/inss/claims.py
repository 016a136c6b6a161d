"""InSS's claims I1, I5 and I6, computed from its tables, from one plan of each planner, and from its experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import fsum

from lab.baselines.names import GPULET, GSLICE, IGNITER
from lab.evaluate.claims import EvaluationClaim, PaperMeasure
from lab.evaluate.inss.experiments import HEAVY, PLANNED, SATURATED
from lab.evaluate.inss.tables import TABLE, TABLE_2, TABLE_3, worst_errors
from lab.evaluate.measured import EvaluationResult
from solvers.planners.names import INSS

PROFILES = (
    "Times are printed for one share or one batch of each model on one GPU type, else scaled (lab/testbeds/inss.yaml); "
    "interference is a guess."
)
BASELINES = (
    "Baselines follow InSS's description, with an exact queue at each instance and gateways that send no more than "
    "keeps the SLO, which favours them."
)
RATES = "The paper prints no rates; ours ask for four and a half GPUs' best work of six services, five of eight."
REQUESTS = (
    "Every request counts the same, so a planner may leave a service with few requests short: runs state the worst "
    "service. The joint planner may, InSS is punished for it by its reward (3)."
)
MIX = (
    "The highest load of one plan, in sixteenths of the declared rates, with which no service misses more than 1 %, as "
    "in the paper's runs; the paper does not print its mix."
)
EIGHT = " Figures for eight services are bars; the text says up to 180 % above the baselines."
LEFT_OUT = (
    "Each time between two others is predicted from the other three of its row. The paper measured all 16 settings of "
    "a model and predicted the same ones, so the paper's figure is no figure of this test."
)
SAC_D = (
    "Measured on the paper's machine: 4,188 requests a second of gpulet with BDA, 11 % above gpulet, and SAC-D 28.1 % "
    "above gpulet. Ours is on lab/testbeds/inss.yaml, whose rates and neighbours are not the paper's; compare the "
    "order of magnitude. InSS's reward (3) is normalised by model, so its sum of requests is not the largest possible."
)
VIOLATIONS = (
    "The paper reports 4.4, 4.5 and 3.8 % for gpulet, GSLICE and iGniter. Loads move by a fifth within five minutes."
)


@dataclass(frozen=True, slots=True)
class InssPlanFigures:
    """The rates that the testbed's plans serve, by planner and seed: back to back, and sustained with all SLOs kept."""

    back_to_back: Sequence[Mapping[str, float]]
    sustained_six: Sequence[Mapping[str, float]]
    sustained_eight: Sequence[Mapping[str, float]]


def inss_claims(results: Sequence[EvaluationResult], plans: InssPlanFigures) -> list[EvaluationClaim]:
    """Returns the claims; each value is the mean over the seeds."""
    seeds = len({result.seed for result in results})
    claims = [
        EvaluationClaim(_error(2), worst_errors(TABLE_2), seeds),
        EvaluationClaim(_error(3), worst_errors(TABLE_3), seeds),
        EvaluationClaim(THROUGHPUT_OF_SAC_D, _means(plans.back_to_back), seeds),
    ]
    missed = _list_by_seed(results, PLANNED, lambda result: result.violations_percent)
    claims.append(EvaluationClaim(VIOLATED, _means(missed), seeds))
    for services, found in (("six", plans.sustained_six), ("eight", plans.sustained_eight)):
        for baseline, times in OVER:
            claims.append(EvaluationClaim(_sustained(services, baseline, times), _means(found), seeds))
    for experiment, services in ((SATURATED, "six"), (HEAVY, "eight")):
        values = _means(_list_by_seed(results, experiment, lambda result: result.mean("within_per_second")))
        for baseline, times in OVER:
            claims.append(EvaluationClaim(_throughput(services, baseline, times), values, seeds))
    return claims


OVER = ((GPULET, 1.281), (GSLICE, 1.477), (IGNITER, 2.897))  # by how much InSS's throughput is above


def _list_by_seed(
    results: Sequence[EvaluationResult], experiment: str, value: Callable[[EvaluationResult], float]
) -> list[dict[str, float]]:
    seeds = sorted({result.seed for result in results})
    return [
        {result.planner: value(result) for result in results if (result.experiment, result.seed) == (experiment, seed)}
        for seed in seeds
    ]


def _means(by_seed: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: fsum(found[name] for found in by_seed) / len(by_seed) for name in by_seed[0]}


def _error(table: int) -> PaperMeasure:
    metric = f"largest error of a time of Table {table} predicted without it, %"
    return PaperMeasure("I1", metric, 4.0, TABLE, INSS, "printed", LEFT_OUT, is_limit=True)


THROUGHPUT_OF_SAC_D = PaperMeasure(
    "I5", "requests a second of six services with batches back to back, one plan at the declared rates", 4833.0,
    GPULET, INSS, "scaled", f"{SAC_D} {PROFILES}", is_more_better=True, is_limit=True,
)  # fmt: skip
VIOLATED = PaperMeasure(
    "I6", "requests of six services that miss their SLO at the declared rates, %", 1.0, GPULET, INSS, "scaled",
    f"{VIOLATIONS} {PROFILES} {BASELINES}", is_limit=True,
)  # fmt: skip


def _sustained(services: str, baseline: str, times: float) -> PaperMeasure:
    metric = f"requests a second of {services} services in the declared mix, each of which gets 99 %, over {baseline}"
    note = f"{MIX} {PROFILES} {BASELINES}{EIGHT if services == 'eight' else ''}"
    return PaperMeasure("I6", metric, times, baseline, INSS, "scaled", note, is_more_better=True)


def _throughput(services: str, baseline: str, times: float) -> PaperMeasure:
    metric = f"requests a second within the SLO, {services} services that ask for more than the GPUs, over {baseline}"
    note = f"{RATES} {REQUESTS} {PROFILES} {BASELINES}{EIGHT if services == 'eight' else ''}"
    return PaperMeasure("I6", metric, times, baseline, INSS, "scaled", note, is_more_better=True)
