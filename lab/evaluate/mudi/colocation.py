"""Mudi's claim M2: how often the GPU that a predictor from layers chooses for a training never seen is the best one.

Six GPUs have a service each. Truth is the physics of `simulation.truth`, in which each kind of layer is drawn like a
model, and a training is mostly what its layers are. A predictor knows what the other trainings did to each service,
and of this one its layers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, fsum, log, log1p
from typing import Any, TypeAlias

import numpy as np

from app.control.formulate.problem import build_problem
from app.manifests.model import Kind, Manifest
from lab.evaluate.mudi.experiments import RATES
from lab.evaluate.testbeds import testbed
from lab.evaluate.verdicts import MeasuredFigure, measured_alike
from lab.truths.trainings import draw_training, mixed_traits
from simulation.truth.family import draw_gpu, draw_traits, generator
from simulation.truth.fitting import KnownFigures, fit_load
from simulation.truth.load import GpuPhysics, PhysicalLoad
from simulation.truth.neighbours import ActiveLoad, paces
from solvers.interference.layers import LayeredValues, predict_from_layers
from solvers.interference.observation import Neighbour, SharedRun, SlowdownObservation
from solvers.interference.profile_factors import pressure_and_sensitivity
from solvers.planners.names import JOINT, MUDI

WITHOUT_LAYERS, CHANCE = "mean of the other trainings", "any GPU"
WORLDS = 10  # of each seed, drawn
OWN_SHARE = 0.3  # of what a training is like beyond its layers
SERVICE_PERCENT, TRAINING_PERCENT = 40, 60
SERVICE_BATCH, TRAINING_BATCH = 8, 1
NOISE_SHARE = 0.02  # of a measured slowdown
NEAR_BEST = 0.01
Slowed: TypeAlias = Mapping[tuple[str, str], float]  # by service and training: its time to that alone
Layers: TypeAlias = Mapping[str, Mapping[str, int]]  # by training


@dataclass(frozen=True, slots=True)
class ColocationWorld:
    """The slowdowns of each service beside each training: as it is, and as it was measured."""

    services: tuple[str, ...]
    layers: Layers
    true: Slowed
    measured: Slowed


Predict: TypeAlias = Callable[[ColocationWorld, str], Mapping[str, float]]


def colocation_figures(seeds: Sequence[int]) -> dict[str, MeasuredFigure]:
    """Returns the figure of claim M2."""
    by_seed = [_right_percents([colocation_world(seed, number) for number in range(WORLDS)]) for seed in seeds]
    return {"co-locations": measured_alike(by_seed, 100.0)}


def colocation_world(seed: int, number: int) -> ColocationWorld:
    """Draws a GPU, what its services and kinds of layers are like, and the error of each measurement."""
    world = testbed("mudi", RATES)
    problem = build_problem(world)
    (kind,) = problem.gpu_types.values()
    drawn = int(generator(seed, "colocation", str(number)).integers(2**31))
    gpu = draw_gpu(drawn, kind.name, kind.idle_w, kind.max_w, kind.top_clock_mhz)
    profiles = {
        profile.model: KnownFigures(profile.latency_ms)
        for profile in problem.profiles.values()
        if any(service.model == profile.model for service in problem.services.values())
    }
    services = {name: fit_load(known, gpu, draw_traits(drawn, name)) for name, known in sorted(profiles.items())}
    layers = {job.name: _layers(job) for job in world.of(Kind.JOB)}
    trainings = {name: _training(drawn, name, counts, gpu) for name, counts in sorted(layers.items())}
    true = {
        (service, training): _slowed(gpu, load, neighbour)
        for service, load in services.items()
        for training, neighbour in trainings.items()
    }
    errors = np.exp(NOISE_SHARE * generator(drawn, "measured").standard_normal(len(true)))
    measured = {pair: slowed * error for (pair, slowed), error in zip(true.items(), errors.tolist(), strict=True)}
    return ColocationWorld(tuple(services), layers, true, measured)


def _training(drawn: int, name: str, layers: Mapping[str, int], gpu: GpuPhysics) -> PhysicalLoad:
    """Draws a training of these layers; a kind of many layers weighs by the logarithm of their number."""
    whole = fsum(log1p(count) for count in layers.values())
    parts = [
        ((1 - OWN_SHARE) * log1p(count) / whole, draw_traits(drawn, f"layer {kind}"))
        for kind, count in sorted(layers.items())
    ]
    traits = mixed_traits([*parts, (OWN_SHARE, draw_traits(drawn, f"training {name}"))])
    return draw_training(drawn, name, gpu, traits=traits)


def _slowed(gpu: GpuPhysics, service: PhysicalLoad, training: PhysicalLoad) -> float:
    residents = [
        ActiveLoad(service, SERVICE_BATCH, SERVICE_PERCENT / 100),
        ActiveLoad(training, TRAINING_BATCH, TRAINING_PERCENT / 100),
    ]
    return paces(gpu, residents, 1.0)[0].slow


def _right_percents(worlds: Sequence[ColocationWorld]) -> dict[str, float]:
    """Returns by predictor how many of its choices are right, in percent."""
    cases = [(world, training) for world in worlds for training in world.layers]
    found = {
        name: 100 * fsum(is_right(world, training, predict(world, training)) for world, training in cases) / len(cases)
        for name, predict in PREDICTORS.items()
    }
    near = [_near(world, training) for world, training in cases]
    by_chance = fsum(len(services) / len(world.services) for (world, _), services in zip(cases, near, strict=True))
    return {**found, CHANCE: 100 * by_chance / len(cases)}


def is_right(world: ColocationWorld, training: str, predicted: Mapping[str, float]) -> bool:
    """Returns whether the service with the least predicted slowdown is among the least slowed."""
    return min(world.services, key=lambda service: (predicted[service], service)) in _near(world, training)


def _near(world: ColocationWorld, training: str) -> set[str]:
    slowed = {service: world.true[service, training] for service in world.services}
    return {service for service, value in slowed.items() if value <= (1 + NEAR_BEST) * min(slowed.values())}


def predict_by_mean(world: ColocationWorld, training: str) -> Mapping[str, float]:
    """Predicts what the other trainings did to a service on average."""
    others = [other for other in world.layers if other != training]
    return {
        service: exp(fsum(log(world.measured[service, other]) for other in others) / len(others))
        for service in world.services
    }


def predict_by_layers(world: ColocationWorld, training: str) -> Mapping[str, float]:
    """Predicts by the layers for each service on its own, from what the other trainings did to it."""
    return {
        service: _predict_values(
            [
                LayeredValues(layers, (world.measured[service, other] - 1,))
                for other, layers in world.layers.items()
                if other != training
            ],
            world.layers[training],
        )[0]
        for service in world.services
    }


def predict_by_pressure(world: ColocationWorld, training: str) -> Mapping[str, float]:
    """Predicts pressures by the layers, from the others' pressures, and multiplies them by sensitivities."""
    observations = [
        SlowdownObservation(SharedRun(service, SERVICE_PERCENT, (Neighbour(other, TRAINING_PERCENT),)), slowed)
        for (service, other), slowed in world.measured.items()
        if other != training
    ]
    factors = pressure_and_sensitivity(observations)
    known = [
        LayeredValues(layers, tuple(factors[other].pressures_at(TRAINING_PERCENT).values()))
        for other, layers in world.layers.items()
        if other != training
    ]
    names = factors[next(iter(world.services))].sensitivity
    pressures = dict(zip(names, _predict_values(known, world.layers[training]), strict=True))
    return {service: factors[service].slowdown_beside([pressures]) for service in world.services}


def _predict_values(known: Sequence[LayeredValues], layers: Mapping[str, int]) -> tuple[float, ...]:
    predicted = predict_from_layers(known, layers)
    assert predicted
    return predicted.expected


def _layers(job: Manifest) -> Mapping[str, int]:
    """Returns the layers that a training's only profile states."""
    spec: Mapping[str, Any] = job.spec
    (profile,) = spec["profiles"].values()
    layers: Mapping[str, int] = profile["layers"]
    return layers


PREDICTORS: Mapping[str, Predict] = {
    WITHOUT_LAYERS: predict_by_mean,
    MUDI: predict_by_layers,
    JOINT: predict_by_pressure,
}
