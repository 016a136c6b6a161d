"""The kinds of GPU that can be simulated: their data sheets, and what drivers report; none was measured by us."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents.contract.gpus import read_sheets


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


def _read(
    name: str, sheet_name: str, product: str, clock_low_mhz: float, clock_step_mhz: float, power_min_w: float,
    **as_reported: float,
) -> SimulatedKind:  # fmt: skip
    """Returns a kind by its data sheet; `as_reported` is what drivers report otherwise, as of memory beside ECC."""
    sheet = read_sheets()[sheet_name]
    facts: dict[str, Any] = {
        "memory_gib": sheet.memory_gib, "clock_high_mhz": sheet.clocks_mhz[-1], "idle_w": sheet.idle_w,
        "power_max_w": sheet.max_w,
    }  # fmt: skip
    return SimulatedKind(
        name, product, sm_count=sheet.sm_count, clock_low_mhz=clock_low_mhz, clock_step_mhz=clock_step_mhz,
        power_min_w=power_min_w, power_default_w=sheet.max_w, **facts | as_reported,
    )  # fmt: skip


KINDS = {
    kind.name: kind
    for kind in (
        _read("v100-16gb", "v100-sxm2-16gb", "Tesla V100-SXM2-16GB", 135, 7.5, 150),
        _read("v100-32gb", "v100-sxm2-32gb", "Tesla V100-SXM2-32GB", 135, 7.5, 150, idle_w=40),
        _read("t4", "t4-16gb", "Tesla T4", 300, 15, 60, memory_gib=15),
        _read(
            "2080ti", "rtx-2080-ti-11gb", "NVIDIA GeForce RTX 2080 Ti", 300, 15, 100,
            clock_high_mhz=2100, power_max_w=280, ecc=False,
        ),
        _read(
            "3090", "rtx-3090-24gb", "NVIDIA GeForce RTX 3090", 210, 15, 100,
            clock_high_mhz=2100, idle_w=20, ecc=False,
        ),
        _read("a100-40gb", "a100-sxm4-40gb", "NVIDIA A100-SXM4-40GB", 210, 15, 100, sm_step=2),
        _read("a100-80gb", "a100-sxm4-80gb", "NVIDIA A100-SXM4-80GB", 210, 15, 100, idle_w=55, sm_step=2),
        _read("l4", "l4-24gb", "NVIDIA L4", 210, 15, 40, memory_gib=23),
        _read("l40s", "l40s-48gb", "NVIDIA L40S", 210, 15, 100, memory_gib=45),
        _read("h100-80gb", "h100-sxm5-80gb", "NVIDIA H100 80GB HBM3", 345, 15, 200, sm_step=2),
        _read("h200-141gb", "h200-sxm-141gb", "NVIDIA H200", 345, 15, 200, memory_gib=140, sm_step=2),
    )
}  # fmt: skip
