"""Draws trainings of the family of physical models, as published pairs of jobs have them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from simulation.truth.family import ModelTraits, draw_traits, generator
from simulation.truth.load import GpuPhysics, PhysicalLoad


def mixed_traits(parts: Sequence[tuple[float, ModelTraits]]) -> ModelTraits:
    """Returns what a model of several parts is like: the geometric mean of its parts, by their weights."""
    weights = np.array([weight for weight, _ in parts])
    table = np.log([astuple(traits) for _, traits in parts])
    return ModelTraits(*np.exp(weights @ table / weights.sum()).tolist())


def draw_training(
    seed: int,
    name: str,
    gpu: GpuPhysics,
    host_share: tuple[float, float] = (0.0, 0.6),
    traits: ModelTraits | None = None,
) -> PhysicalLoad:
    """Draws a training job without limits, as in published pairs; a step at the whole GPU takes some 100 ms."""
    traits, drawn = traits or draw_traits(seed, name), generator(seed, "training", name)
    step_ms = float(np.exp(drawn.normal(np.log(100.0), 1.0)))
    host = step_ms * drawn.uniform(*host_share)
    fill = float(np.clip(np.exp(drawn.normal(np.log(2.0), 0.7)), 0.05, 1.0))
    busy = step_ms - host
    compute = busy / (1 + traits.move_ratio**gpu.overlap) ** (1 / gpu.overlap)
    return PhysicalLoad(
        compute_ms=compute * fill,
        compute_fixed_ms=0.0,
        move_ms=compute * traits.move_ratio,
        move_fixed_ms=0.0,
        launch_ms=0.0,
        host_ms=host,
        fill_share=fill,
        fill_exponent=traits.fill_exponent,
        l2_need=traits.l2_need,
        l2_reuse=traits.l2_reuse,
        weight=traits.weight,
    )
