"""The multiplexing problem: training jobs next to services, on the SMs that these leave free (Mudi, M3 and M7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from solvers.planning.problem import Curve, Job
from solvers.proof import Proof


class WrongMultiplexing(ValueError):
    """A problem with a repeated name or an invalid number."""


@dataclass(frozen=True, slots=True)
class MultiplexedService:
    """A service that runs on a GPU already, as far as jobs are concerned."""

    name: str
    sm_percent: int
    exec_ms: Curve  # of its batch over SM%, alone, at the highest clock
    pressure: float  # on its neighbours
    bears: float  # the largest sum of its neighbours' pressures within its SLO
    sensitivity: float = 0.0
    clock_exponent: float = 1.0


@dataclass(frozen=True, slots=True)
class MultiplexedGpu:
    """A GPU with its services and the room that they leave."""

    name: str
    gpu_type: str
    services: tuple[MultiplexedService, ...]
    free_memory_gib: float
    free_w: float = float("inf")  # under its cap, with all services busy
    clock: float = 1.0  # as a share of the highest

    @property
    def spare_sm_percent(self) -> int:
        return 100 - sum(service.sm_percent for service in self.services)


@dataclass(frozen=True)
class MultiplexingProblem:
    """Jobs in order of arrival, and GPUs to put them on."""

    gpus: tuple[MultiplexedGpu, ...]
    jobs: tuple[Job, ...]
    jobs_per_gpu: int = 3
    waiting_seconds: float = 1000.0  # a step's seconds that a waiting job counts as

    def __post_init__(self) -> None:
        for kind, names in (("GPUs", [g.name for g in self.gpus]), ("jobs", [j.name for j in self.jobs])):
            if len(set(names)) < len(names):
                raise WrongMultiplexing(f"two {kind} share a name")
        for gpu in self.gpus:
            if not 0 < gpu.clock <= 1:
                share = f"GPU {gpu.name} runs at {gpu.clock:g} of its highest clock"
                raise WrongMultiplexing(f"{share}; (0, 1] is allowed")
            if gpu.spare_sm_percent < 0:
                raise WrongMultiplexing(f"the services of GPU {gpu.name} hold {100 - gpu.spare_sm_percent} SM%")
        if self.jobs_per_gpu < 1:
            raise WrongMultiplexing(f"jobsPerGpu {self.jobs_per_gpu} is below 1")


@dataclass(frozen=True, slots=True, order=True)
class MultiplexedJob:
    """A job on a GPU, with its even part of the spare SMs."""

    job: str
    gpu: str
    sm_percent: int


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A waiting job, with the reason and the least change on one GPU that would let it run with all else unchanged."""

    job: str
    reason: str
    relaxation: str


@dataclass(frozen=True, slots=True)
class MultiplexingPlan:
    """The placed jobs with their steps a second, the waiting jobs, and the proof."""

    placed: tuple[MultiplexedJob, ...]
    steps_per_second: Mapping[str, float]
    waiting: tuple[WaitingJob, ...]
    proof: Proof
