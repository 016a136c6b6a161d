"""Lists the seven GPU types of every family: facts of data sheets, example prices, and how fast each runs a model."""

from __future__ import annotations

from dataclasses import dataclass

from agents.contract.gpus import read_sheets
from solvers.planning.problem import GpuType


@dataclass(frozen=True, slots=True)
class Hardware:
    """A GPU type with what decides its speed, its example price, and its share of the fleet."""

    gpu_type: GpuType
    sm_count: int
    tensor_tflops: float  # dense half precision, by the data sheet
    bandwidth_gb_per_second: float
    price_per_hour: float  # the example of agents/contract/gpus.yaml, in no currency
    share: float  # of the fleet's GPUs

    def speed(self, compute_bound: float) -> float:
        """Returns how many times faster than the reference an SM runs a model, between bandwidth (0) and compute (1).

        By the SM, not by the board: a board with more SMs is no faster at a batch that does not fill them, it takes
        more instances side by side, as the knee of a curve states.
        """
        compute = (self.tensor_tflops / self.sm_count) / (REFERENCE.tensor_tflops / REFERENCE.sm_count)
        bandwidth = self.bandwidth_gb_per_second / self.sm_count
        bandwidth /= REFERENCE.bandwidth_gb_per_second / REFERENCE.sm_count
        return float(compute**compute_bound * bandwidth ** (1 - compute_bound))


def read_gpu_type(sheet_name: str, name: str = "", clocks_mhz: tuple[float, ...] = ()) -> GpuType:
    """Returns the type of a data sheet; a family may have another name or other clocks for it."""
    sheet = read_sheets()[sheet_name]
    clocks = clocks_mhz or tuple(float(clock) for clock in sheet.clocks_mhz)
    return GpuType(name or sheet.name, float(sheet.memory_gib), float(sheet.idle_w), float(sheet.max_w), clocks)


def _read_hardware(name: str, share: float, clocks_mhz: tuple[float, ...] = ()) -> Hardware:
    sheet = read_sheets()[name]
    assert sheet.tensor_tflops, "the types of families have speeds"
    assert sheet.bandwidth_gb_per_second
    return Hardware(
        read_gpu_type(name, clocks_mhz=clocks_mhz), sheet.sm_count, sheet.tensor_tflops, sheet.bandwidth_gb_per_second,
        sheet.example_price_per_hour, share,
    )  # fmt: skip


FLEET = (
    _read_hardware("t4-16gb", 0.25),
    _read_hardware("v100-pcie-16gb", 0.15),
    _read_hardware("a10-24gb", 0.15),
    _read_hardware("l4-24gb", 0.15),
    _read_hardware("a30-24gb", 0.15),
    _read_hardware("a40-48gb", 0.05, (705, 960, 1230, 1485, 1740)),  # as recorded families have it
    _read_hardware("a100-pcie-40gb", 0.10),
)
REFERENCE = next(hardware for hardware in FLEET if hardware.gpu_type.name == "v100-pcie-16gb")


def counts(gpus: int) -> dict[str, int]:
    """Returns GPUs of each type: the shares, rounded to add up by largest remainder, then the order of the fleet."""
    exact = [gpus * hardware.share for hardware in FLEET]
    whole = [int(value + 1e-9) for value in exact]
    order = sorted(range(len(FLEET)), key=lambda index: (whole[index] - exact[index], index))
    for index in order[: gpus - sum(whole)]:
        whole[index] += 1
    return {hardware.gpu_type.name: count for hardware, count in zip(FLEET, whole, strict=True)}
