"""InSS's experiments (section 6.3) on its testbed: gpulet, GSLICE, iGniter, InSS and the joint planner under one load.

The paper prints neither rates nor how long a run is. A service's declared rate is what a quarter of a GPU serves at its
best (lab/testbeds/inss.yaml), so eight services at six times theirs ask for twelve GPUs where there are four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lab.baselines.names import GPULET, GSLICE, IGNITER
from lab.evaluate.measured import EvaluationRun
from lab.evaluate.testbeds import testbed
from simulation.shapes import Shape, moving, noisy
from solvers.planners.names import INSS, JOINT

PLANNERS = (GPULET, GSLICE, IGNITER, INSS, JOINT)
NOISE_SHARE = 0.02
DEPTH, PERIOD_SECONDS = 0.2, 300.0  # of the moving loads
SECONDS = 300.0
RATES = {
    "serving/alexnet": 1190.0,
    "serving/resnet50": 120.0,
    "serving/vgg16": 42.0,
    "serving/mnasnet": 1240.0,
    "serving/mobilenet": 1120.0,
    "serving/efficientnet": 330.0,
    "serving/resnet18": 330.0,
    "serving/vgg19": 34.0,
}
FEWER_SERVICES = 6  # of the eight, in the paper's order
OVERLOAD_TIMES = 6.0  # the declared rates: more than twice what any planner serves


@dataclass(frozen=True, slots=True)
class InssExperiment:
    """An experiment: so many services, at so many times their declared rates."""

    name: str
    services: int
    times: float

    @property
    def rates(self) -> Mapping[str, float]:
        return {name: rate * self.times for name, rate in list(RATES.items())[: self.services]}


PLANNED, SATURATED, HEAVY = "planned", "saturated", "heavy"
EXPERIMENTS = (
    InssExperiment(PLANNED, FEWER_SERVICES, 1.0),
    InssExperiment(SATURATED, FEWER_SERVICES, OVERLOAD_TIMES),
    InssExperiment(HEAVY, len(RATES), OVERLOAD_TIMES),
)


def inss_runs(seeds: Sequence[int]) -> list[EvaluationRun]:
    """Returns every run, those of the heaviest loads first."""
    ranked = sorted(EXPERIMENTS, key=lambda experiment: -experiment.times)
    worlds = {experiment.name: testbed("inss", experiment.rates) for experiment in ranked}
    return [
        EvaluationRun(
            experiment.name, planner, seed, worlds[experiment.name], inss_shapes(experiment, seed), SECONDS
        )
        for experiment in ranked
        for planner in reversed(PLANNERS)
        for seed in seeds
    ]  # fmt: skip


def inss_shapes(experiment: InssExperiment, seed: int) -> dict[str, Shape]:
    """Returns the load of each service as factors of its rate, which move by up to a fifth within minutes."""
    return {
        name: noisy(moving(f"{seed} {name}", DEPTH, PERIOD_SECONDS), NOISE_SHARE, f"{seed} {name}")
        for name in experiment.rates
    }
