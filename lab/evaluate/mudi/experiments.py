"""Mudi's experiments on its testbed: trainings beside six services on twelve A100s, under Mudi, others and ours.

The slides print neither loads nor how long trainings take. Here a training takes a sixtieth of its time in
lab/testbeds/mudi.yaml. Some are there from the start, others keep arriving until the end, as in Microsoft's trace, so
that SMs at work and completion times are of one load; which ones is drawn by the shares of Table 3.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind, Manifest
from app.manifests.offline import DeclaredFiles
from lab.baselines.names import GPULET, GSLICE, MUXFLOW
from lab.evaluate.measured import EvaluationRun, JobArrival
from lab.evaluate.sustained import sustained_figure
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure
from simulation.shapes import Shape, moving, noisy
from solvers.planners.names import JOINT, MUDI, RESERVE

PLANNERS = (GSLICE, GPULET, MUXFLOW, RESERVE, MUDI, JOINT)
RATES = {
    "serving/resnet50": 1150.0, "serving/inception": 800.0, "serving/gpt2": 160.0, "serving/bert": 280.0,
    "serving/roberta": 270.0, "serving/yolos": 26.0,
}  # fmt: skip
FIRST_TRAININGS, MEAN_GAP_SECONDS = 12, 30.0  # those at the start, and between the others on average
SHORTENED = 60.0  # times, of each training
TRAINING_PRICE_PER_HOUR = 12.0  # above that of a node, which is billed whole: a training may open any
SECONDS, FROM_SECONDS = 1200.0, 120.0
NOISE_SHARE = 0.02
DEPTH, PERIOD_SECONDS = 0.2, 300.0  # of the moving loads


CLUSTER = "cluster"


def mudi_runs(seeds: Sequence[int]) -> list[EvaluationRun]:
    """Returns every run."""
    return [
        EvaluationRun(
            CLUSTER, planner, seed, mudi_world(seed), mudi_shapes(seed), SECONDS, FROM_SECONDS, later_trainings(seed)
        )
        for planner in reversed(PLANNERS)
        for seed in seeds
    ]  # fmt: skip


def mudi_world(seed: int) -> DeclaredFiles:
    """Returns the testbed with the trainings that are there from the start."""
    world = testbed("mudi", RATES)
    first = [training for at, training in _trainings(seed) if at == 0.0]
    manifests = {key: manifest for key, manifest in world.manifests.items() if key.kind is not Kind.JOB}
    return DeclaredFiles({**manifests, **{training.key: training for training in first}})


def later_trainings(seed: int) -> list[JobArrival]:
    """Returns the trainings that come while the fleet runs."""
    return [JobArrival(at, training) for at, training in _trainings(seed) if at > 0.0]


def _trainings(seed: int) -> list[tuple[float, Manifest]]:
    """Draws trainings by the shares of Table 3, each with the second at which it comes."""
    tasks = sorted(testbed("mudi", RATES).of(Kind.JOB), key=lambda task: task.name)
    shares = [float(str(task.labels["share"])) for task in tasks]
    random = Random(f"trainings {seed}")  # noqa: S311
    times, at = [0.0] * FIRST_TRAININGS, random.expovariate(1 / MEAN_GAP_SECONDS)
    while at < SECONDS:
        times.append(at)
        at += random.expovariate(1 / MEAN_GAP_SECONDS)
    drawn = random.choices(tasks, shares, k=len(times))
    return [(at, _shortened(task, number)) for number, (at, task) in enumerate(zip(times, drawn, strict=True))]


def _shortened(task: Manifest, number: int) -> Manifest:
    steps = max(1.0, round(float(str(task.spec["steps"])) / SHORTENED))
    spec = {**task.spec, "steps": steps, "maxPricePerHour": TRAINING_PRICE_PER_HOUR}
    return replace(task, name=f"{task.name}-{number:02}", spec=spec)


def mudi_sustained(seeds: Sequence[int]) -> MeasuredFigure:
    """Returns the load that one plan of each planner sustains beside the trainings."""
    return sustained_figure({seed: build_problem(mudi_world(seed)) for seed in seeds}, PLANNERS)


def mudi_shapes(seed: int) -> dict[str, Shape]:
    """Returns the load of each service as factors of its rate, which move by up to a fifth within minutes."""
    return {
        name: noisy(moving(f"{seed} {name}", DEPTH, PERIOD_SECONDS), NOISE_SHARE, f"{seed} {name}") for name in RATES
    }
