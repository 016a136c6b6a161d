"""The placement problem: instances whose shape is decided, and GPUs to put them on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from solvers.proof import Proof


class WrongPlacement(ValueError):
    """A problem that names an unknown node or GPU, or one thing twice."""


@dataclass(frozen=True, slots=True)
class PlacementNode:
    """A machine, with the CPU cores and the memory that the instances on its GPUs share."""

    name: str
    cpu_cores: float
    host_memory_gib: float


@dataclass(frozen=True, slots=True)
class PlacementGpu:
    """One device on a node."""

    name: str
    node: str
    gpu_type: str
    memory_gib: float
    price_per_hour: float = 1.0  # paid once an instance is placed on it


@dataclass(frozen=True, slots=True)
class PlacementInstance:
    """An instance to place. Instances of one model avoid each other: HetSev, section 3.2."""

    name: str
    model: str
    memory_gib: float
    cpu_cores: float = 0.0
    host_memory_gib: float = 0.0
    gpu_types: frozenset[str] | None = None  # None: any
    waited_seconds: float = 0.0


@dataclass(frozen=True)
class PlacementProblem:
    """Instances to place on GPUs. Instances that are placed already stay where they are."""

    nodes: tuple[PlacementNode, ...]
    gpus: tuple[PlacementGpu, ...]
    instances: tuple[PlacementInstance, ...]
    current: Mapping[str, str] = field(default_factory=dict)  # instance -> GPU
    same_model_per_gpu: int = 1
    unplaced_price: float = 1000.0  # per hour: leaving an instance out is dearer than any GPU, never infeasible

    def __post_init__(self) -> None:
        for kind, names in (
            ("nodes", [node.name for node in self.nodes]),
            ("GPUs", [gpu.name for gpu in self.gpus]),
            ("instances", [instance.name for instance in self.instances]),
        ):
            repeated = [name for name, count in Counter(names).items() if count > 1]
            if repeated:
                raise WrongPlacement(f"two {kind} are called {repeated[0]}")
        nodes = {node.name for node in self.nodes}
        for gpu in self.gpus:
            if gpu.node not in nodes:
                raise WrongPlacement(f"GPU {gpu.name} is on the unknown node {gpu.node}")
        for instance, name in self.current.items():
            if instance not in self.by_name or name not in self.gpu_by_name:
                raise WrongPlacement(f"{instance} is placed on {name}; one of the two is unknown")

    @cached_property
    def by_name(self) -> dict[str, PlacementInstance]:
        return {instance.name: instance for instance in self.instances}

    @cached_property
    def gpu_by_name(self) -> dict[str, PlacementGpu]:
        return {gpu.name: gpu for gpu in self.gpus}

    @cached_property
    def pending(self) -> tuple[PlacementInstance, ...]:
        return tuple(instance for instance in self.instances if instance.name not in self.current)

    def suits(self, instance: PlacementInstance, gpu: PlacementGpu) -> bool:
        """Returns whether the GPU has a suitable type and, when empty, enough memory."""
        has_type = instance.gpu_types is None or gpu.gpu_type in instance.gpu_types
        return has_type and instance.memory_gib <= gpu.memory_gib


Placement = Mapping[str, str]
"""Instance -> GPU, for all placed instances."""


@dataclass(frozen=True, slots=True)
class PlacementOutcome:
    """The placement, a reason for each unplaced instance, and the proof."""

    placement: Placement
    reasons: Mapping[str, str]  # of each unplaced instance
    proof: Proof
