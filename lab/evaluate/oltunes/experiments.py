"""OLTunes' experiments (section 4) on its testbed: two patterns of arrivals under Orion, reserve-and-pack and others.

Table 7's rates load eight GPUs little, so they are multiplied. The paper's trace of Apollo is not public in a form that
can be played; bursts of each service stand for it. Uniform arrivals are left out: the paper finds no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles
from app.manifests.uncertain import MEAN_QUANTILE
from lab.baselines.names import ORION
from lab.evaluate.measured import EvaluationRun
from lab.evaluate.sustained import sustained_figure
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure
from simulation.shapes import Shape, noisy, steady
from solvers.planners.names import JOINT, OLTUNES, RESERVE

PLANNERS = (ORION, RESERVE, OLTUNES, JOINT)
# Requests a second, Table 7; YOLOv5 and ResNet(50, 152) have one figure for two variants: half each.
RATES = {
    "classify-small": 60.0, "detect-small": 20.0, "detect-large": 20.0, "classify-medium": 12.5,
    "classify-large": 12.5, "answer": 5.0, "generate": 2.0,
}  # fmt: skip
SECONDS, FROM_SECONDS = 300.0, 90.0
STRESS_TIMES, TRACE_TIMES = 10.0, 5.0
RAISED_TIMES = 80.0  # of which no planner serves half
BURST_TIMES = (1.5, 3.0)
BURST_SECONDS, CALM_SECONDS = (20.0, 90.0), (30.0, 150.0)
NOISE_SHARE = 0.02
MOST_LOSS_SHARE = 0.04  # of accuracy, declared for all planners as a mean


@dataclass(frozen=True, slots=True)
class OlTunesExperiment:
    """A pattern of arrivals at Table 7's rates times a factor."""

    name: str
    times: float
    is_bursty: bool


POISSON, BURSTS, RAISED = "poisson", "bursts", "raised bursts"
EXPERIMENTS = (
    OlTunesExperiment(POISSON, STRESS_TIMES, is_bursty=False),
    OlTunesExperiment(BURSTS, TRACE_TIMES, is_bursty=True),
    OlTunesExperiment(RAISED, RAISED_TIMES, is_bursty=True),
)


def oltunes_runs(seeds: Sequence[int]) -> list[EvaluationRun]:
    """Returns every run, one seed after the other."""
    worlds = {
        experiment.name: declare_accuracy(testbed("oltunes", oltunes_rates(experiment))) for experiment in EXPERIMENTS
    }
    return [
        EvaluationRun(
            experiment.name, planner, seed, worlds[experiment.name], oltunes_shapes(experiment, seed), SECONDS,
            FROM_SECONDS,
        )
        for seed in seeds
        for experiment in EXPERIMENTS
        for planner in PLANNERS
    ]  # fmt: skip


def oltunes_rates(experiment: OlTunesExperiment) -> dict[str, float]:
    """Returns the declared rate of each service."""
    return {f"serving/{name}": rate * experiment.times for name, rate in RATES.items()}


def oltunes_shapes(experiment: OlTunesExperiment, seed: int) -> dict[str, Shape]:
    """Returns the load of each service as factors of its rate."""
    return {
        name: noisy(bursts(f"{seed} {name}") if experiment.is_bursty else steady, NOISE_SHARE, f"{seed} {name}")
        for name in oltunes_rates(experiment)
    }


def bursts(seed: str) -> Shape:
    """Returns a load that rises to a multiple and falls back at once, at moments of the seed."""
    rng = Random(f"bursts {seed}")  # noqa: S311
    found, at = list[tuple[float, float, float]](), rng.uniform(*CALM_SECONDS)
    while at < SECONDS:
        ends = at + rng.uniform(*BURST_SECONDS)
        found.append((at, ends, rng.uniform(*BURST_TIMES)))
        at = ends + rng.uniform(*CALM_SECONDS)
    return lambda seconds: next((times for begins, ends, times in found if begins <= seconds < ends), 1.0)


def oltunes_sustained(seeds: Sequence[int]) -> MeasuredFigure:
    """Returns the load that one plan of each planner sustains, in the mix of Table 7."""
    world = declare_accuracy(testbed("oltunes", oltunes_rates(EXPERIMENTS[0])))
    return sustained_figure(dict.fromkeys(seeds, build_problem(world, MEAN_QUANTILE)), PLANNERS)


def declare_accuracy(world: DeclaredFiles) -> DeclaredFiles:
    """Declares that a service's mean accuracy is at most 4 % below the best variant that it may use."""
    problem = build_problem(world, MEAN_QUANTILE)
    manifests = dict(world.manifests)
    for manifest in world.of(Kind.SERVICE):
        service = problem.services[f"{manifest.tenant}/{manifest.name}"]
        known = {variant.name: variant.accuracy for variant in problem.models[service.model]}
        least = (1 - MOST_LOSS_SHARE) * max(known[name] for name in service.variants)
        manifests[manifest.key] = replace(manifest, spec={**manifest.spec, "meanAccuracy": round(least, 6)})
    return DeclaredFiles(manifests)
