"""The kinds of GPU that can be simulated, with figures of their public data sheets; none was measured by us."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SimulatedKind:
    """The properties that all GPUs of one kind share."""

    name: str
    product: str
    memory_gib: float
    sm_count: int
    clock_low_mhz: float
    clock_high_mhz: float
    clock_step_mhz: float
    idle_w: float
    power_min_w: float  # the lowest allowed limit
    power_default_w: float  # power at full load and the highest clock
    power_max_w: float
    ecc: bool = True
    sm_step: int = 1  # SMs are allotted in units of this size; 2 for allotment by TPC

    @property
    def clocks_mhz(self) -> tuple[int, ...]:
        steps = int((self.clock_high_mhz - self.clock_low_mhz) / self.clock_step_mhz + 1e-9)
        return tuple(int(self.clock_low_mhz + step * self.clock_step_mhz) for step in range(steps + 1))


KINDS = {
    kind.name: kind
    for kind in (
        SimulatedKind("v100-16gb", "Tesla V100-SXM2-16GB", 16, 80, 135, 1530, 7.5, 40, 150, 300, 300),
        SimulatedKind("v100-32gb", "Tesla V100-SXM2-32GB", 32, 80, 135, 1530, 7.5, 40, 150, 300, 300),
        SimulatedKind("t4", "Tesla T4", 15, 40, 300, 1590, 15, 10, 60, 70, 70),
        SimulatedKind("2080ti", "NVIDIA GeForce RTX 2080 Ti", 11, 68, 300, 2100, 15, 15, 100, 250, 280, ecc=False),
        SimulatedKind("3090", "NVIDIA GeForce RTX 3090", 24, 82, 210, 2100, 15, 20, 100, 350, 350, ecc=False),
        SimulatedKind("a100-40gb", "NVIDIA A100-SXM4-40GB", 40, 108, 210, 1410, 15, 50, 100, 400, 400, sm_step=2),
        SimulatedKind("a100-80gb", "NVIDIA A100-SXM4-80GB", 80, 108, 210, 1410, 15, 55, 100, 400, 400, sm_step=2),
        SimulatedKind("l4", "NVIDIA L4", 23, 58, 210, 2040, 15, 16, 40, 72, 72),
        SimulatedKind("l40s", "NVIDIA L40S", 45, 142, 210, 2520, 15, 35, 100, 350, 350),
        SimulatedKind("h100-80gb", "NVIDIA H100 80GB HBM3", 80, 132, 345, 1980, 15, 70, 200, 700, 700, sm_step=2),
        SimulatedKind("h200-141gb", "NVIDIA H200", 140, 132, 345, 1980, 15, 75, 200, 700, 700, sm_step=2),
    )
}
