"""The estate: nodes with GPUs, the pods that hold them, and the workloads that a person or an autoscaler scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, NamedTuple, TypeAlias

# A node's `purchase` has the values of a Node manifest; an empty one is unknown.
NodePurchase: TypeAlias = Literal["", "owned", "reserved", "onDemand", "spot"]
SharingMode: TypeAlias = Literal["whole", "timeSlicing", "mps", "mig"]

NOTHING = Fraction(0)
OURS = "gpuwright.io/"  # begins our annotations
MOST_REPLICAS = 10_000  # of a workload that somebody decides on


class WorkloadName(NamedTuple):
    """The name of what is scaled: `prod/Deployment/ranker`."""

    namespace: str
    kind: str
    name: str

    def __str__(self) -> str:
        return "/".join(self)


@dataclass(frozen=True, slots=True, order=True)
class UnknownFigure:
    """A figure that what was read does not give: whose it is, why it is missing, and what it takes to have it."""

    subject: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}; {self.remedy}"


@dataclass(frozen=True, slots=True)
class GpuSlots:
    """What a node offers under one name of a resource, as `nvidia.com/gpu: 40` of 4 GPUs that ten pods share each."""

    resource: str
    slots: int
    gpus_per_slot: Fraction
    sharing: SharingMode


@dataclass(frozen=True, slots=True)
class GpuNode:
    """A node with GPUs. It is billed whole, whatever runs on it."""

    name: str
    gpus: int
    product: str  # as drivers name it, with dashes: `NVIDIA-A100-SXM4-80GB`; empty: unknown
    memory_gib: float | None  # of one GPU
    offers: tuple[GpuSlots, ...]
    instance_type: str
    region: str
    pool: str
    purchase: NodePurchase
    cpu_cores: float | None
    host_memory_gib: float | None
    is_ready: bool
    is_cordoned: bool
    source: str  # where its GPUs are read


@dataclass(frozen=True, slots=True)
class GpuPod:
    """A pod that holds GPUs of its node, or waits for some: then `node` is empty and it holds none."""

    namespace: str
    name: str
    workload: WorkloadName
    node: str
    slots: Mapping[str, int]  # resource -> how many it asks for
    devices: tuple[str, ...]  # of its resource claims, as `gpu-3`
    gpus: Fraction  # of its node that it holds
    replica: str  # pods of one replica have the same
    is_ready: bool
    uses_part: bool = False  # of GPUs that KAI's scheduler divides in equal parts


@dataclass(frozen=True, slots=True)
class Autoscaler:
    """What sets a workload's replicas, and between which bounds."""

    kind: str  # HorizontalPodAutoscaler or ScaledObject
    name: str
    least: int
    most: int
    metrics: tuple[str, ...]
    is_paused: bool = False


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many pods must stay, or may go, at once: numbers or percents as they are declared."""

    name: str
    min_available: str = ""
    max_unavailable: str = ""


@dataclass(frozen=True, slots=True)
class PodSpread:
    """A rule that keeps pods of one workload apart; without `max_skew`, two never share a domain."""

    topology: str  # label of nodes: `kubernetes.io/hostname`
    max_skew: int | None


@dataclass(frozen=True, slots=True)
class ClusterWorkload:
    """A group of pods that is scaled as one. A replica is one pod, or all pods of a group of a LeaderWorkerSet."""

    name: WorkloadName
    owners: tuple[str, ...]  # above it, the nearest first: `InferenceService chat`
    is_scalable: bool
    replicas: int | None  # as declared; None: unknown, or it has none
    running: int  # replicas whose pods all have a node
    ready: int  # replicas whose pods are all ready
    waiting_pods: int
    pods_per_replica: int
    slots_per_replica: Mapping[str, int]
    gpus: Fraction  # held now by all its pods
    autoscaler: Autoscaler | None
    budgets: tuple[DisruptionBudget, ...]
    spread: tuple[PodSpread, ...]
    images: tuple[str, ...]
    annotations: Mapping[str, str]  # those of gpuwright.io alone
    barred_nodes: frozenset[str] = frozenset()  # with GPUs, on which its pods may not stand
    surge_below: int = 0  # with fewer replicas than this, a rollout starts a pod more before it ends one
    is_tied: bool = False  # to volumes or to pods of other workloads, so that its pods cannot move


@dataclass(frozen=True, slots=True)
class Estate:
    """All that was read, in the order of names, and all that could not be known of it."""

    nodes: tuple[GpuNode, ...]
    workloads: tuple[ClusterWorkload, ...]
    pods: tuple[GpuPod, ...]
    unknown: tuple[UnknownFigure, ...] = ()
    unread_kinds: frozenset[str] = frozenset()  # of objects, whose lists were not read
    by_node: Mapping[str, GpuNode] = field(init=False, repr=False, compare=False)
    by_workload: Mapping[WorkloadName, list[GpuPod]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_node", {node.name: node for node in self.nodes})
        by_workload: dict[WorkloadName, list[GpuPod]] = {}
        for pod in self.pods:
            by_workload.setdefault(pod.workload, []).append(pod)
        object.__setattr__(self, "by_workload", by_workload)

    def pods_of(self, workload: WorkloadName) -> list[GpuPod]:
        return self.by_workload.get(workload, [])
