"""HetSev's experiments (section 6) on its testbed: Kubernetes, HetSev and the joint planner under the same loads.

Rates of single models are not printed, and the lengths of the first two experiments are shorter than the paper's: what
happens before and after a spike repeats itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import pi, sin
from random import Random

from app.control.formulate.problem import build_problem
from lab.evaluate.measured import EvaluationRun
from lab.evaluate.sustained import sustained_figure
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure
from simulation.shapes import Shape, noisy, spike, wave
from solvers.planners.names import HETSEV, HPA, HPA_CHEAPEST, JOINT

PLANNERS = (HPA, HPA_CHEAPEST, HETSEV, JOINT)
NOISE_SHARE = 0.02
RESNET, INCEPTION = "serving/resnet50", "serving/inception-v3"
SSD, TRANSFORMER = "serving/ssd-resnet50", "serving/transformer"
SPIKE_TIMES, HOLD_SECONDS = 4.0, 600.0
DAY_RISE = 1.25  # of the valley
SPIKE_RISE = SPIKE_TIMES * DAY_RISE  # 200 requests a second become 1,000
SATURATED_TIMES = 4.0  # the printed rates, with which no planner of the testbed can serve all


@dataclass(frozen=True, slots=True)
class HetSevExperiment:
    """An experiment: the lowest rate of each service, the seconds, and whether all spikes begin together."""

    name: str
    rates: Mapping[str, float]
    seconds: float
    spike_at: float | None  # None: two waves instead
    is_together: bool = True


EXPERIMENTS = (
    HetSevExperiment("production", {RESNET: 120.0, INCEPTION: 80.0}, 1500.0, 500.0),
    HetSevExperiment("saturated", {RESNET: 120.0 * SATURATED_TIMES, INCEPTION: 80.0 * SATURATED_TIMES}, 1500.0, 500.0),
    HetSevExperiment("fluctuating", {RESNET: 60.0, INCEPTION: 40.0, SSD: 4.0}, 2500.0, None),
    HetSevExperiment(
        "cost", {RESNET: 75.0, INCEPTION: 50.0, SSD: 3.0, TRANSFORMER: 1.5}, 3000.0, 900.0, is_together=False
    ),
)


def hetsev_runs(seeds: Sequence[int]) -> list[EvaluationRun]:
    """Returns every run, the long ones first."""
    ranked = sorted(EXPERIMENTS, key=lambda experiment: -experiment.seconds)
    worlds = {experiment.name: testbed("hetsev", experiment.rates) for experiment in ranked}
    return [
        EvaluationRun(
            experiment.name, planner, seed, worlds[experiment.name], hetsev_shapes(experiment, seed), experiment.seconds
        )
        for experiment in ranked
        for planner in PLANNERS
        for seed in seeds
    ]


def hetsev_sustained(seeds: Sequence[int]) -> MeasuredFigure:
    """Returns the load that one plan of each planner sustains, in the mix of production's spike."""
    spike_rates = {name: SPIKE_RISE * rate for name, rate in EXPERIMENTS[0].rates.items()}
    return sustained_figure(dict.fromkeys(seeds, build_problem(testbed("hetsev", spike_rates))), PLANNERS)


def hetsev_shapes(experiment: HetSevExperiment, seed: int) -> dict[str, Shape]:
    """Returns the load of each service as factors of its lowest rate; the seed moves spikes apart and adds noise."""
    found = {}
    for name in experiment.rates:
        shape: Shape = two_waves
        if experiment.spike_at is not None:
            rng = Random(f"spike {seed} {name}")  # noqa: S311
            begins = experiment.spike_at + (0.0 if experiment.is_together else rng.uniform(0.0, 600.0))
            shape = production(begins, experiment.seconds)
        found[name] = noisy(shape, NOISE_SHARE, f"{seed} {name}")
    return found


def production(begins: float, seconds: float) -> Shape:
    """Returns a day in short: a slow wave, and a spike of four times the load at its height."""
    day, burst = wave(1.0, DAY_RISE, 2 * seconds), spike(begins, SPIKE_TIMES, hold_seconds=HOLD_SECONDS)
    height = DAY_RISE / day(begins + HOLD_SECONDS / 2)
    return lambda at: day(at) * burst(at) * (height if burst(at) > 1.0 else 1.0)


def two_waves(at: float) -> float:
    """Returns figure 6's load: a wave until 1,000 s, and a higher one from 1,200 to 2,400 s."""
    first = 1.5 * sin(pi * at / 1000.0) ** 2 if at < 1000.0 else 0.0
    second = 3.0 * sin(pi * (at - 1200.0) / 1200.0) ** 2 if 1200.0 < at < 2400.0 else 0.0
    return 1.0 + first + second
