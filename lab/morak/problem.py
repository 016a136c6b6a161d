"""The power problem: the models on each GPU, with SM%, batch and clock, when power is limited (Morak, section V)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solvers.morak.power.problem import PoweredResident
from solvers.planning.problem import GpuType, Profile
from solvers.proof import Proof


class WrongPowerProblem(ValueError):
    """A problem with an unknown or repeated name, or an invalid number."""


@dataclass(frozen=True, slots=True)
class PoweredModel:
    """A model under saturated load: every batch is full, and batches run back to back."""

    name: str
    limit_ms: float  # of one batch's execution: Morak, constraint (3)
    profiles: Mapping[str, Profile]  # by GPU type
    sm_percents: Mapping[str, tuple[int, ...]]  # by GPU type: the shares of a GPU it may get
    weight: float = 1.0  # the worth of one request


@dataclass(frozen=True, slots=True)
class PoweredGpu:
    """A GPU under its own cap."""

    name: str
    gpu_type: str
    cap_w: float | None = None  # None: the type's limit
    models: tuple[str, ...] | None = None  # None: all


@dataclass(frozen=True)
class PowerProblem:
    """A fleet, the models, and the watts that all GPUs may draw together."""

    gpu_types: Mapping[str, GpuType]
    gpus: tuple[PoweredGpu, ...]
    models: tuple[PoweredModel, ...]
    budget_w: float | None = None
    residents_per_gpu: int = 4

    def __post_init__(self) -> None:
        names = {model.name for model in self.models}
        for gpu in self.gpus:
            if gpu.gpu_type not in self.gpu_types:
                raise WrongPowerProblem(f"GPU {gpu.name} is of the unknown type {gpu.gpu_type}")
            for unknown in sorted(set(gpu.models or ()) - names):
                raise WrongPowerProblem(f"GPU {gpu.name} admits the unknown model {unknown}")
        if len(names) < len(self.models) or len({gpu.name for gpu in self.gpus}) < len(self.gpus):
            raise WrongPowerProblem("two models or two GPUs share a name")
        if self.residents_per_gpu < 1:
            raise WrongPowerProblem(f"residentsPerGpu {self.residents_per_gpu} is below 1")
        for model in self.models:
            if not (model.limit_ms > 0 and model.weight > 0):
                raise WrongPowerProblem(f"model {model.name}: limit {model.limit_ms:g} ms and weight {model.weight:g} "
                                        "must be over 0")  # fmt: skip
            for gpu_type, shares in model.sm_percents.items():
                curves = model.profiles[gpu_type].latency_ms.values()
                low, high = min(curve[0][0] for curve in curves), max(curve[-1][0] for curve in curves)
                if any(not low <= share <= high for share in shares):
                    raise WrongPowerProblem(f"model {model.name} on {gpu_type}: SM% outside the measured {low}..{high}")

    def cap_w(self, gpu: PoweredGpu) -> float:
        most = self.gpu_types[gpu.gpu_type].max_w
        return most if gpu.cap_w is None else min(gpu.cap_w, most)


@dataclass(frozen=True, slots=True)
class PoweredSetting:
    """The clock and the residents of one GPU. A GPU without a setting idles."""

    gpu: str
    clock_mhz: float
    residents: tuple[PoweredResident, ...]


@dataclass(frozen=True, slots=True)
class Starved:
    """A GPU or a model that gets nothing, with the limit that binds and the least change that helps."""

    kind: str  # gpu or model
    name: str
    reason: str
    relaxation: str


@dataclass(frozen=True, slots=True)
class PowerPlan:
    """The settings of all GPUs that run something, with the proof and what is starved."""

    settings: tuple[PoweredSetting, ...]
    proof: Proof
    starved: tuple[Starved, ...] = ()
