"""Mudi's experiments on its testbed: trainings beside six services on twelve A100s, under Mudi, others and ours.

The slides print neither loads nor how long trainings take. Here a training takes a sixtieth of its time in
lab/testbeds/mudi.yaml, all are there from the start, and which ones is drawn by the shares of Table 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random

from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles
from lab.baselines.names import GPULET, GSLICE
from lab.evaluate.measured import EvaluationRun
from lab.evaluate.testbeds import testbed
from simulation.shapes import Shape, moving, noisy
from solvers.planners.names import JOINT, MUDI, RESERVE

PLANNERS = (GSLICE, GPULET, RESERVE, MUDI, JOINT)
RATES = {
    "serving/resnet50": 1150.0, "serving/inception": 800.0, "serving/gpt2": 160.0, "serving/bert": 280.0,
    "serving/roberta": 270.0, "serving/yolos": 26.0,
}  # fmt: skip
TRAININGS = 24
SHORTENED = 60.0  # times, of each training
SECONDS, FROM_SECONDS = 1200.0, 120.0
NOISE_SHARE = 0.02
DEPTH, PERIOD_SECONDS = 0.2, 300.0  # of the moving loads


@dataclass(frozen=True, slots=True)
class MudiExperiment:
    """The services at so many times their declared rates."""

    name: str
    times: float


CLUSTER, SATURATED = "cluster", "saturated"
EXPERIMENTS = (MudiExperiment(CLUSTER, 1.0), MudiExperiment(SATURATED, 3.0))


def mudi_runs(seeds: Sequence[int]) -> list[EvaluationRun]:
    """Returns every run, those of the heavier load first."""
    return [
        EvaluationRun(
            experiment.name, planner, seed, mudi_world(experiment, seed), mudi_shapes(seed), SECONDS, FROM_SECONDS
        )
        for experiment in reversed(EXPERIMENTS)
        for planner in reversed(PLANNERS)
        for seed in seeds
    ]  # fmt: skip


def mudi_world(experiment: MudiExperiment, seed: int) -> DeclaredFiles:
    """Returns the testbed at the rates of an experiment, with trainings drawn by the shares of Table 3."""
    world = testbed("mudi", {name: rate * experiment.times for name, rate in RATES.items()})
    tasks = sorted(world.of(Kind.JOB), key=lambda task: task.name)
    shares = [float(str(task.labels["share"])) for task in tasks]
    drawn = Random(f"trainings {seed}").choices(tasks, shares, k=TRAININGS)  # noqa: S311
    manifests = {key: manifest for key, manifest in world.manifests.items() if key.kind is not Kind.JOB}
    for number, task in enumerate(drawn):
        steps = max(1.0, round(float(str(task.spec["steps"])) / SHORTENED))
        training = replace(task, name=f"{task.name}-{number:02}", spec={**task.spec, "steps": steps})
        manifests[training.key] = training
    return DeclaredFiles(manifests)


def mudi_shapes(seed: int) -> dict[str, Shape]:
    """Returns the load of each service as factors of its rate, which move by up to a fifth within minutes."""
    return {
        name: noisy(moving(f"{seed} {name}", DEPTH, PERIOD_SECONDS), NOISE_SHARE, f"{seed} {name}") for name in RATES
    }
