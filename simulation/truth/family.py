"""The family of physical models: a seed draws one world from it.

Each figure depends on the seed and on names only, so the same model is the same in every fleet.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from simulation.truth.load import GpuPhysics

DECLARED_ERROR_SHARE = 0.06  # by how much a model's declared times are off, as a deviation


@dataclass(frozen=True, slots=True)
class ModelTraits:
    """The character of a model beyond its times: drawn, because no profile states it."""

    move_ratio: float  # moving over computing, at a full batch on the whole GPU
    fixed_share: float  # of the moving of one request: weights
    l2_need: float
    l2_reuse: float
    weight: float
    move_power_share: float
    host_share: float  # of the shortest batch
    fill_exponent: float


def generator(seed: int, *names: str) -> np.random.Generator:
    """Returns the source of everything that is drawn under these names."""
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in names)])


def draw_gpu(seed: int, name: str, idle_w: float, max_w: float, top_clock_mhz: float) -> GpuPhysics:
    """Draws a kind of GPU."""
    drawn = generator(seed, "gpu", name)
    return GpuPhysics(
        name,
        idle_w,
        max_w,
        top_clock_mhz,
        overlap=drawn.uniform(2.0, 4.5),
        run_ahead=drawn.uniform(3.0, 6.0),
        bandwidth_knee=drawn.uniform(0.12, 0.24),
        dram_sharpness=drawn.uniform(3.0, 6.0),
        dram_wait=drawn.uniform(0.05, 0.2),
        l2_size=float(np.exp(drawn.normal(0.0, 0.3))),
        queue_wait=drawn.uniform(0.1, 0.5),
        block_wait=drawn.uniform(0.2, 0.5),
        power_exponent=drawn.uniform(2.0, 2.8),
    )


def draw_traits(seed: int, model: str) -> ModelTraits:
    """Draws what a model is like on any GPU."""
    drawn = generator(seed, "traits", model)
    return ModelTraits(
        move_ratio=float(np.exp(drawn.normal(np.log(0.6), 0.8))),
        fixed_share=drawn.uniform(0.3, 0.9),
        l2_need=drawn.uniform(0.05, 0.9),
        l2_reuse=drawn.uniform(0.05, 0.6),
        weight=float(np.exp(drawn.normal(0.0, 1.8))),
        move_power_share=drawn.uniform(0.2, 0.5),
        host_share=drawn.uniform(0.02, 0.12),
        fill_exponent=drawn.uniform(0.5, 1.0),
    )
