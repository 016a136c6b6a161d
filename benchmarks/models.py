"""Draws eighteen model families from a seed, and profiles each on every GPU type: latency, memory, pressure, watts.

For model m on type g, at batch b and SM% s (all constants of m drawn once from the seed):

    exec(b, s)  = first x (fixed + (1 - fixed) x b) / speed(g) / reached(s, knee(b, g))
    speed(g)    = compute by the SM ** bound x bandwidth by the SM ** (1 - bound), each against the reference
    reached     = 0.92 x s / knee up to the knee, then linear to 1 at 100 %; s / 100 where the knee is at 100 %
    knee(b, g)  = knee on the reference x b ** 0.25 x (SMs of the reference / SMs of g), within 10..100 %
    memory(b)   = base x (1 + b / 96)
    pressure(s) = peak x (s / 100) ** 0.6
    watts(s)    = (maxW - idleW) x drawn share x (0.06 + 0.94 x s / 100), in family E alone

The shape (time inversely as the SMs up to a knee which rises with the batch, flat beyond) is what measurements of
V100s under MPS show.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.hardware import FLEET, REFERENCE, Hardware
from solvers.planning.problem import Curve, Demand, Profile, Variant

MODELS = 18
BATCHES = (1, 2, 4, 8, 16, 32)
SM_PERCENTS = (10, 20, 30, 40, 50, 60, 80, 100)
PRESSURE_POINTS = (10, 30, 60, 100)
WATT_POINTS = (10, 100)
KNEE_SHARE = 0.92
FULL = Variant("fp16", 0.78)
SMALL = Variant("int8", 0.75)
SMALL_SPEED_FACTOR = 1.6  # of int8 against fp16
SMALL_MEMORY_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """The drawn constants of a model."""

    name: str
    first_ms: float  # batch 1, whole reference GPU
    fixed: float  # part of it that a larger batch does not repeat
    compute_bound: float
    knee_percent: float  # on the reference, at batch 1
    memory_gib: float
    peak_pressure: float
    sensitivity: float
    clock_exponent: float
    power_exponent: float
    drawn_power: float  # of what the board can draw above idle


def draw_models(rng: np.random.Generator) -> tuple[ModelFamily, ...]:
    """Returns the eighteen, from 3 to 60 ms and 1 to 9 GiB."""
    return tuple(
        ModelFamily(
            name=f"model-{number:02d}",
            first_ms=float(np.exp(rng.uniform(np.log(3), np.log(60)))),
            fixed=float(rng.uniform(0.55, 0.85)),
            compute_bound=float(rng.uniform(0.1, 0.9)),
            knee_percent=float(rng.uniform(12, 45)),
            memory_gib=float(np.exp(rng.uniform(np.log(1), np.log(9)))),
            peak_pressure=float(rng.uniform(0.2, 0.9)),
            sensitivity=float(rng.uniform(0.05, 0.4)),
            clock_exponent=float(rng.uniform(0.5, 1.0)),
            power_exponent=float(rng.uniform(2.0, 2.8)),
            drawn_power=float(rng.uniform(0.5, 0.95)),
        )
        for number in range(1, MODELS + 1)
    )


def exec_ms(model: ModelFamily, hardware: Hardware, batch: int, sm_percent: float) -> float:
    """Returns the time of a batch alone on the GPU."""
    whole = model.first_ms * (model.fixed + (1 - model.fixed) * batch) / hardware.speed(model.compute_bound)
    knee = min(100.0, max(10.0, model.knee_percent * batch**0.25 * REFERENCE.sm_count / hardware.sm_count))
    if knee >= 100:
        reached = sm_percent / 100
    elif sm_percent <= knee:
        reached = KNEE_SHARE * sm_percent / knee
    else:
        reached = KNEE_SHARE + (1 - KNEE_SHARE) * (sm_percent - knee) / (100 - knee)
    return float(whole / reached)


def profile(
    model: ModelFamily, variant: Variant, hardware: Hardware, *, scalar_pressure: bool, with_power: bool
) -> Profile:
    """Returns the profile of a variant on a GPU type."""
    slow, large = (SMALL_SPEED_FACTOR, SMALL_MEMORY_SHARE) if variant is SMALL else (1.0, 1.0)
    return Profile(
        model=model.name,
        variant=variant.name,
        gpu_type=hardware.gpu_type.name,
        latency_ms={
            batch: tuple((sm, round_figure(exec_ms(model, hardware, batch, sm) / slow)) for sm in SM_PERCENTS)
            for batch in BATCHES
        },
        memory_gib={batch: round_figure(model.memory_gib * large * (1 + batch / 96)) for batch in BATCHES},
        demand=Demand(
            pressure=_pressure(model, scalar_pressure),
            sensitivity=round_figure(model.sensitivity),
            power_w=_watts(model, hardware) if with_power else ((100, 0.0),),
            clock_exponent=round_figure(model.clock_exponent) if with_power else 1.0,
            power_exponent=round_figure(model.power_exponent) if with_power else 1.0,
        ),
    )


def profiles(
    models: tuple[ModelFamily, ...], variants: tuple[Variant, ...], *, scalar_pressure: bool, with_power: bool
) -> list[Profile]:
    """Returns the profile of every model and variant on every GPU type."""
    return [
        profile(model, variant, hardware, scalar_pressure=scalar_pressure, with_power=with_power)
        for model in models
        for variant in variants
        for hardware in FLEET
    ]


def _pressure(model: ModelFamily, scalar: bool) -> Curve:
    if scalar:
        return ((100, round_figure(model.peak_pressure * 0.5**0.6)),)
    return tuple((sm, round_figure(model.peak_pressure * (sm / 100) ** 0.6)) for sm in PRESSURE_POINTS)


def _watts(model: ModelFamily, hardware: Hardware) -> Curve:
    above_idle = hardware.gpu_type.max_w - hardware.gpu_type.idle_w
    return tuple((sm, round_figure(above_idle * model.drawn_power * (0.06 + 0.94 * sm / 100))) for sm in WATT_POINTS)


def round_figure(value: float) -> float:
    """Rounds to six significant digits, as a person would write."""
    return float(f"{value:.6g}")
