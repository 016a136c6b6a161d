"""A model on a kind of GPU as a physical load: how long a batch takes alone, and what it uses meanwhile.

A batch waits for its host, launches kernels, computes on the SMs that it can fill, and moves bytes through DRAM.
Launches run ahead of kernels, and computing and moving overlap in part. Shares are of the whole GPU: 0.3 of its SMs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import exp
from typing import Protocol

MEMORY_CLOCK_EXPONENT = 0.15  # of the SM clock: caches follow it, DRAM does not
LAUNCH_CLOCK_EXPONENT = 0.3
FILL_SHARPNESS = 6.0  # of the bend where a batch cannot fill more SMs


@dataclass(frozen=True, slots=True)
class GpuPhysics:
    """The constants of a kind of GPU, the same for any load."""

    name: str
    idle_w: float
    max_w: float
    top_clock_mhz: float
    overlap: float  # of computing and moving: 1 is none, large is full
    run_ahead: float  # the same of launches and kernels
    bandwidth_knee: float  # share of the SMs that pulls 63 % of the bandwidth
    dram_sharpness: float  # of the bend where bandwidth is used up
    dram_wait: float  # by how much a used DRAM slows, before it is used up
    l2_size: float
    queue_wait: float
    block_wait: float  # of kernels behind those of others, where shares of the SMs overlap
    power_exponent: float  # of the clock

    def __post_init__(self) -> None:
        if not 0 <= self.idle_w < self.max_w:
            raise ValueError(f"{self.name} draws {self.idle_w:g} W idle and {self.max_w:g} W at most")
        if not self.top_clock_mhz > 0:
            raise ValueError(f"{self.name} has the highest clock {self.top_clock_mhz:g}")


class Beyond(Protocol):
    """A factor on the time of a batch."""

    def factor(self, batch: float, sm_share: float) -> float: ...


@dataclass(frozen=True, slots=True)
class PhysicalLoad:
    """The hidden figures of a model; times are those of the whole GPU at the highest clock."""

    compute_ms: float  # a request
    compute_fixed_ms: float  # a batch
    move_ms: float  # a request
    move_fixed_ms: float  # a batch: the weights
    launch_ms: float  # a batch; launches run ahead of kernels
    host_ms: float  # a batch: transfers, and what else the GPU waits for
    fill_share: float  # of the SMs that one request fills
    fill_exponent: float  # how that grows with the batch
    l2_need: float  # what it keeps in L2, over the L2 of a usual GPU
    l2_reuse: float  # how much more it moves when all of that is evicted
    weight: float  # when SMs are fought over: how many blocks it brings
    compute_w: float = 100.0  # at all SMs
    move_w: float = 50.0  # at all bandwidth
    beyond: Beyond | None = field(default=None, compare=False)  # what is measured and not explained


@dataclass(frozen=True, slots=True)
class SharedTimes:
    """The parts of a batch, in ms, and their sum alone."""

    host: float
    launch: float
    compute: float
    move: float
    alone: float
    sms: float  # share that it computes on
    pull: float  # share of the bandwidth that its SMs can pull
    moved: float  # ms of the whole bandwidth


def times(load: PhysicalLoad, gpu: GpuPhysics, batch: float, sm_share: float, clock_share: float = 1.0) -> SharedTimes:
    """Returns the parts of a batch that has the GPU's shared parts to itself."""
    sms = _softly_least(sm_share, min(1.0, load.fill_share * batch**load.fill_exponent))
    compute = (load.compute_fixed_ms + load.compute_ms * batch) / sms / clock_share
    pull = (1 - exp(-sm_share / gpu.bandwidth_knee)) / (1 - exp(-1 / gpu.bandwidth_knee))
    moved = load.move_fixed_ms + load.move_ms * batch
    move = moved / pull / clock_share**MEMORY_CLOCK_EXPONENT
    launch = load.launch_ms / clock_share**LAUNCH_CLOCK_EXPONENT
    return SharedTimes(
        load.host_ms, launch, compute, move, total(gpu, load.host_ms, launch, compute, move), sms, pull, moved
    )


def total(gpu: GpuPhysics, host: float, launch: float, compute: float, move: float) -> float:
    """Joins the parts of a batch: the largest of launching, computing and moving hides most of the others."""
    return host + _join(launch, _join(compute, move, gpu.overlap), gpu.run_ahead)


def _join(first: float, second: float, sharpness: float) -> float:
    large, small = max(first, second), min(first, second)
    return float(large * (1 + (small / large) ** sharpness) ** (1 / sharpness))


def _softly_least(first: float, second: float) -> float:
    return float((first**-FILL_SHARPNESS + second**-FILL_SHARPNESS) ** (-1 / FILL_SHARPNESS))
