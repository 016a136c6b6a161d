"""Lists the seven GPU types of every family: facts of data sheets, example prices, and how fast each runs a model."""

from __future__ import annotations

from dataclasses import dataclass

from solvers.planning.problem import GpuType


@dataclass(frozen=True, slots=True)
class Hardware:
    """A GPU type with what decides its speed, its example price, and its share of the fleet."""

    gpu_type: GpuType
    sm_count: int
    tensor_tflops: float  # dense half precision, by the data sheet
    bandwidth_gb_per_second: float
    price_per_hour: float  # the example of cli/catalogue/gpus.yaml, in no currency
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


def _hardware(
    name: str, memory_gib: float, watts: tuple[float, float], clocks_mhz: tuple[float, ...], **facts: float
) -> Hardware:
    return Hardware(
        GpuType(name, memory_gib, watts[0], watts[1], clocks_mhz),
        sm_count=int(facts["sm_count"]),
        tensor_tflops=facts["tflops"],
        bandwidth_gb_per_second=facts["bandwidth"],
        price_per_hour=facts["price"],
        share=facts["share"],
    )


FLEET = (
    _hardware(
        "t4-16gb", 16, (10, 70), (630, 870, 1110, 1350, 1590),
        sm_count=40, tflops=65, bandwidth=320, price=0.5, share=0.25,
    ),
    _hardware(
        "v100-pcie-16gb", 16, (25, 250), (555, 765, 960, 1170, 1380),
        sm_count=80, tflops=112, bandwidth=900, price=1.8, share=0.15,
    ),
    _hardware(
        "a10-24gb", 24, (18, 150), (675, 930, 1185, 1440, 1695),
        sm_count=72, tflops=125, bandwidth=600, price=1.0, share=0.15,
    ),
    _hardware(
        "l4-24gb", 24, (16, 72), (810, 1125, 1425, 1740, 2040),
        sm_count=58, tflops=121, bandwidth=300, price=0.8, share=0.15,
    ),
    _hardware(
        "a30-24gb", 24, (28, 165), (570, 795, 1005, 1230, 1440),
        sm_count=56, tflops=165, bandwidth=933, price=1.3, share=0.15,
    ),
    _hardware(
        "a40-48gb", 48, (30, 300), (705, 960, 1230, 1485, 1740),
        sm_count=84, tflops=150, bandwidth=696, price=1.3, share=0.05,
    ),
    _hardware(
        "a100-pcie-40gb", 40, (35, 250), (570, 780, 990, 1200, 1410),
        sm_count=108, tflops=312, bandwidth=1555, price=2.2, share=0.10,
    ),
)  # fmt: skip
REFERENCE = next(hardware for hardware in FLEET if hardware.gpu_type.name == "v100-pcie-16gb")


def counts(gpus: int) -> dict[str, int]:
    """Returns GPUs of each type: the shares, rounded to add up by largest remainder, then the order of the fleet."""
    exact = [gpus * hardware.share for hardware in FLEET]
    whole = [int(value + 1e-9) for value in exact]
    order = sorted(range(len(FLEET)), key=lambda index: (whole[index] - exact[index], index))
    for index in order[: gpus - sum(whole)]:
        whole[index] += 1
    return {hardware.gpu_type.name: count for hardware, count in zip(FLEET, whole, strict=True)}
