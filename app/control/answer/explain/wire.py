"""What explanations say, as the API spells it; known also where no solvers are."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from app.control.answer.explain.plan import HeldBackChangeWire
from app.wire import MomentText
from solvers.forecast.headroom import Keeper, Part
from solvers.planning.wire import HeldGpusWire, PredictedTimesWire


class ExplainedInstanceWire(HeldGpusWire, TypedDict):
    """An instance of a service."""

    id: str
    service: str
    node: str
    variant: str
    batch: int
    smPercent: float
    memoryGib: float
    ratePerSecond: float
    predicted: PredictedTimesWire


class InstanceReasonsWire(TypedDict):
    """Reasons in words."""

    gpu: str
    batch: str
    smPercent: str
    notCheaper: str


class InstanceAlternativeWire(TypedDict):
    """Instances that could carry the same rate; `broken` names the rule that they break."""

    words: str
    gpuType: str
    instances: int
    node: str
    variant: str
    batch: int
    smPercent: float
    opensGpus: bool
    addsPerHour: float
    churn: float
    right: bool
    broken: str | None


class UnfitGpuTypeWire(TypedDict):
    """A GPU type that cannot carry the rate, and why."""

    gpuType: str
    reason: str


class ExplainedBatchWire(TypedDict):
    """What another batch would carry at the same share."""

    batch: int
    ratePerSecond: float
    execMs: float


class ExplainedShapeWire(TypedDict):
    """Why instances of a service look as they do."""

    instance: ExplainedInstanceWire
    gpuType: str
    costPerHour: float
    leastSmPercent: float
    batches: list[ExplainedBatchWire]
    why: NotRequired[InstanceReasonsWire]
    runnerUp: NotRequired[InstanceAlternativeWire | None]
    alternatives: NotRequired[list[InstanceAlternativeWire]]
    unfit: NotRequired[list[UnfitGpuTypeWire]]


class InstanceExplanationWire(ExplainedShapeWire):
    """Why an instance is where and how it is."""

    sentences: list[str]


class ProfileSpreadWire(TypedDict):
    """How uncertain an execution time is."""

    gpuType: str
    batch: int
    smPercent: float
    meanMs: float
    plannedMs: float
    quantile: float
    n: int | None
    at: str | None
    source: str
    draft: str


class ProfileUncertaintyWire(TypedDict):
    """What a service pays for profiles that are not known well."""

    couldSavePerHour: float
    worthProfiling: bool
    spreads: list[ProfileSpreadWire]


class WorthProfilingWire(TypedDict):
    """A service whose profiles are worth measuring again."""

    service: str
    couldSavePerHour: float
    costPerHour: float


class UnservedReasonWire(TypedDict):
    """The rate that is not served, why, and the least change that would help; `proved` if that was verified."""

    ratePerSecond: float
    reason: str
    relaxation: str
    proved: bool


class UnservedWhyWire(TypedDict):
    """Why a rate is not served, and the least change that would help."""

    reason: str
    relaxation: str


class ProfilingWorthWire(TypedDict):
    """What profiling could save, in sentences and numbers."""

    sentences: list[str]
    worthProfiling: list[WorthProfilingWire]


class Missing(TypedDict):
    """Why the plan does not have what was asked for."""

    missing: str


class HeadroomPartWire(TypedDict):
    """A part of what is planned above the load, and what it costs in proportion."""

    part: Part
    ratePerSecond: float
    costPerHour: float


class HeadroomWire(TypedDict):
    """What is planned above the load that arrives, the rule that keeps it, and when it falls at the earliest."""

    arrivingPerSecond: float
    plannedPerSecond: float
    peakPerSecond: float
    costPerHour: float
    parts: list[HeadroomPartWire]
    keptBy: Keeper
    givesWay: bool  # to requests of other services that arrive, as GPUs are short
    fallsAt: MomentText | None


class ExplainedServiceWire(TypedDict):
    """Why a service has what it has, or lacks what it lacks, by the plan alone."""

    service: str
    ratePerSecond: float
    costPerHour: float
    sentences: list[str]
    instances: list[ExplainedInstanceWire]
    unserved: UnservedReasonWire | None
    uncertainty: ProfileUncertaintyWire
    headroom: NotRequired[HeadroomWire | None]
    shapes: NotRequired[list[ExplainedShapeWire]]


class ServiceExplanationWire(ExplainedServiceWire, TypedDict):
    """Why a service has what it has, or lacks what it lacks."""

    heldBack: list[HeldBackChangeWire]
    lately: NotRequired[list[str]]


class JobPlaceWire(TypedDict):
    """The GPU of a job."""

    node: str
    gpu: int
    gpuType: str
    smPercent: float
    memoryGib: float
    unitsPerSecond: float


class JobExplanationWire(TypedDict):
    """Where a job runs and when it ends, or why it waits."""

    job: str
    phase: str
    left: float
    endsAt: MomentText | None
    placed: JobPlaceWire | None
    reason: str
    relaxation: str
    predicted: dict[str, list[str]]
    sentences: list[str]
