"""InSS's problem (1)-(1f): a GPU, a share of its SMs and a batch for every model, with the most throughput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from solvers.proof import Proof


class WrongThroughput(ValueError):
    """A problem with an unknown or repeated name, or an invalid number."""


@dataclass(frozen=True, slots=True)
class ThroughputGpuType:
    """A GPU type and its memory."""

    name: str
    memory_gib: float


@dataclass(frozen=True, slots=True)
class ThroughputShape:
    """The memory and the time limit of one batch of a model, the same on every GPU."""

    memory_gib: float
    most_exec_ms: float  # the longest batch that keeps (1c), queueing included
    usable: tuple[tuple[float, float], ...]  # (exec ms, share of h that keeps the SLO)


@dataclass(frozen=True, slots=True)
class Speed:
    """A model on a GPU type: its time alone, as measured with transfer and scheduling, and what neighbours do to it."""

    run_ms: Mapping[tuple[int, int], float]  # by (batch, SM%)
    cache_slope: float  # alpha^u: L2 use per share of the SMs
    cache_base: float  # beta^u
    cache_sensitivity: float  # alpha^cache: slowdown per unit of the others' L2 use

    def __post_init__(self) -> None:
        if self.cache_sensitivity < 0 or self.cache_base < 0 or self.cache_base + self.cache_slope < 0:
            raise WrongThroughput("a model's L2 use or its sensitivity to others' L2 use is below 0")

    def cache_use(self, sm_percent: int) -> float:
        return self.cache_slope * sm_percent / 100 + self.cache_base


@dataclass(frozen=True, slots=True)
class ThroughputModel:
    """A model: its arrivals, its shapes by batch, and its speeds by GPU type."""

    name: str
    rate_per_second: float  # lambda, constraint (1d)
    shapes: Mapping[int, ThroughputShape]
    speeds: Mapping[str, Speed]
    norm_per_second: float  # H: throughput at 100 % SM and the least batch
    family: str = ""  # at most one model of a family runs on a GPU; "": any number
    is_dedicated: bool = False  # nothing else runs on its GPU


@dataclass(frozen=True)
class ThroughputProblem:
    """The models, the GPUs by type, and the SM shares that may be assigned."""

    models: tuple[ThroughputModel, ...]
    gpu_types: tuple[ThroughputGpuType, ...]
    gpus: Mapping[str, int]  # by type
    sm_steps: tuple[int, ...]
    penalty: float  # omega of reward (3), for the share of a rate that is not served

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise WrongThroughput("two models share a name")
        known = {kind.name for kind in self.gpu_types}
        for name, count in self.gpus.items():
            if name not in known:
                raise WrongThroughput(f"{count} GPUs are of the unknown type {name}")
            if count < 0:
                raise WrongThroughput(f"the number of GPUs of type {name} is {count}; 0 is the least")
        if not all(1 <= step <= 100 for step in self.sm_steps):
            raise WrongThroughput(f"SM steps {self.sm_steps} are not all within 1..100")

    @cached_property
    def type_of(self) -> dict[str, ThroughputGpuType]:
        return {kind.name: kind for kind in self.gpu_types}

    @cached_property
    def by_name(self) -> dict[str, ThroughputModel]:
        return {model.name: model for model in self.models}

    @cached_property
    def places(self) -> tuple[tuple[str, int], ...]:
        """The type and number of every GPU."""
        return tuple((name, number) for name in sorted(self.gpus) for number in range(self.gpus[name]))

    def may_share(self, models: Sequence[ThroughputModel]) -> bool:
        """Returns whether a GPU may run these models at once."""
        families = [model.family for model in models if model.family]
        return len(set(families)) == len(families) and not (len(models) > 1 and any(m.is_dedicated for m in models))


@dataclass(frozen=True, slots=True)
class ServedModel:
    """One model on one GPU."""

    gpu_type: str
    gpu: int
    sm_percent: int
    batch: int


Answer = Mapping[str, ServedModel]
"""The answer for each model; a missing model could not be served together with the others."""


@dataclass(frozen=True, slots=True)
class ThroughputOutcome:
    """The GPU, SM% and batch of every served model, and the proof."""

    answer: Answer
    proof: Proof
