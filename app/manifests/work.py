"""Specs of tenants' work: services under an SLO, jobs, and (offline) running instances."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from app.manifests.adapters import Adapters
from app.manifests.job_runtime import CheckpointSpec, ExitCodesSpec, ProgressSpec, Requests, job_contradictions
from app.manifests.language import TokensSpec, slo_contradictions
from app.manifests.model import JSON
from app.manifests.quantities import (
    LARGEST,
    Count,
    Fraction,
    Moment,
    Name,
    Names,
    NotNegative,
    Positive,
    Priority,
    Risk,
    Speeds,
    Word,
    Words,
    distinct,
)
from app.manifests.runtime import RuntimeSpec
from app.manifests.served import DemandSpec
from app.manifests.spec import Contradiction, Spec
from app.manifests.uncertain import PositiveValue
from app.manifests.words import LABEL, Mode


class Slo(Spec):
    """The share of requests that must be answered within a latency, or keep the times of a language model's tokens."""

    latency_ms: Positive | None = Field(None, description="From arrival to answer")
    ttft_ms: Positive | None = Field(None, description="Of a language model: from arrival to the first token")
    tpot_ms: Positive | None = Field(
        None, description="Of a language model: from the first token to the last, over the tokens after the first"
    )
    percentile: Annotated[float, Field(ge=50, le=99.9)] = Field(description="Share of requests, in percent")


class AvailabilitySpec(Spec):
    """The part of a service that must be left when a part of the fleet fails."""

    spread: Literal["gpu", "node", "region"] = Field("gpu", description="What minInstances counts different ones of")
    survive_nodes: Annotated[int, Field(ge=0, le=1)] = Field(
        0, description="1: without any one node the other instances carry the rate, at utilization 0.95 at most"
    )
    max_spot_share: Fraction = Field(1, description="Part of the rate that spot nodes may carry")


class ServiceSpec(Spec):
    """A model served online under an SLO."""

    model: Name = Field(description="Model")
    min_accuracy: Fraction | None = Field(None, description="Least accuracy of the variants it may use")
    mean_accuracy: Fraction | None = Field(
        None, description="Promised mean accuracy of its served requests; variants below it may serve some of them"
    )
    variants: Words | None = Field(None, description="Variants it may use; with minAccuracy, both must hold")
    slo: Slo = Field(description="The latency promise")
    tokens: TokensSpec | None = Field(None, description="Of a language model: the lengths of its requests")
    adapters: Adapters | None = Field(
        None,
        description="LoRA adapters of a language model: each copy holds them all, and requests choose by name",
    )
    rate_per_second: Positive = Field(1, description="Requests a second to expect until gateways have counted them")
    burstiness: Annotated[float, Field(ge=1, le=50)] = Field(
        1, description="Variance over mean of arrivals counted in windows of the SLO's latency; 1: Poisson"
    )
    gpu_types: Names | None = Field(None, description="GPU types it may use, the preferred type first; all if left out")
    min_instances: Annotated[int, Field(ge=1, le=10_000)] = Field(1, description="Smallest number of instances")
    isolation: Literal["shared", "dedicated"] = Field("shared", description="Whether others may use its GPUs")
    priority: Priority = Field(100, description="Weight of its unserved load")
    mode: Mode | None = Field(None, description="Overrides the policy's mode for this service")
    risk: Risk | None = Field(None, description="Overrides the policy's risk for this service")
    availability: AvailabilitySpec | None = Field(
        None, description="Where its instances run, so that enough is left when a part of the fleet fails"
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        yield from slo_contradictions(spec)
        slo = spec.get("slo")
        if "adapters" in spec and isinstance(slo, dict) and "ttftMs" not in slo:
            yield Contradiction("adapters", "only a language model holds adapters", "an SLO of ttftMs and tpotMs")


class JobProfileSpec(DemandSpec):
    """The speed of a job on one GPU type, and its resources."""

    steps_per_second: Speeds | None = Field(None, description="Training: SM% -> steps a second; learned if left out")
    requests_per_second: Speeds | None = Field(
        None, description="Offline: SM% -> requests a second; learned if left out"
    )
    memory_gib: PositiveValue = Field(description="GPU memory")
    layers: Annotated[dict[Word, Annotated[int, Field(ge=0, le=int(LARGEST))]], Field(min_length=1)] | None = Field(
        None, max_length=1_000, description="Layers by kind, for predicting interference"
    )


class JobSpec(Spec):
    """Training, or offline inference."""

    type: Literal["training", "offline"] = Field(description="What it does")
    steps: Count | None = Field(None, description="Training: steps to do")
    requests: Requests | None = Field(
        None, description="Offline: how many requests it answers, or the JSONL file or folder on nodes that holds them"
    )
    request_count: Count | None = Field(None, description="Lines of that file or folder")
    runtime: RuntimeSpec | None = Field(
        None, description="What runs it; left out, gpuwright-train, or gpuwright-batch for a file of requests"
    )
    retries: Annotated[int, Field(ge=0, le=1_000)] = Field(
        4, description="How many of its processes in a row may fail without progress and be replaced"
    )
    exit_codes: ExitCodesSpec | None = Field(None, description="What its exit codes mean; 0 is done if left out")
    checkpoint: CheckpointSpec | None = Field(None, description="How it saves before it is stopped")
    progress: ProgressSpec | None = Field(None, description="The metrics that count its progress; a file if left out")
    deadline: Moment | None = Field(None, description="When it must be done")
    gpus: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="Above 1: so many whole GPUs of one node, linked with each other"
    )
    max_price_per_hour: Positive | None = Field(
        None, description="Price limit of a GPU that is opened for it, or of all its GPUs"
    )
    preemptible: bool = Field(True, description="Whether it may be stopped once it runs")
    swap: bool = Field(
        False,
        description="Whether its process may wait in host memory once preempted: on SIGTSTP it saves, moves its GPU "
        "memory to the host and stops itself, and on SIGCONT it goes on",
    )
    priority: Priority = Field(100, description="Weight of leaving it waiting or unplaced")
    profiles: Annotated[dict[Name, JobProfileSpec], Field(min_length=1, max_length=1_000)] = Field(
        description="GpuType -> how it runs there"
    )

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        yield from job_contradictions(spec)
        kind = spec.get("type")
        if kind not in ("training", "offline"):
            return
        if spec.get("gpus", 1) != 1 and isinstance(spec.get("requests"), str):
            yield Contradiction("gpus", "requests from a file are sent to a server on one GPU", "1", spec["gpus"])
        wanted, other = ("steps", "requests") if kind == "training" else ("requests", "steps")
        if wanted not in spec:
            yield Contradiction(wanted, f"a job of type {kind} needs {wanted}", "a whole number of at least 1")
        if other in spec:
            yield Contradiction(other, f"a job of type {kind} has no {other}", f"{wanted} only")
        profiles = spec.get("profiles")
        for gpu_type, profile in profiles.items() if isinstance(profiles, dict) else ():
            if not isinstance(profile, dict):
                continue
            speed, stray = f"{wanted}PerSecond", f"{other}PerSecond"
            speeds = profile.get(speed)
            if spec.get("gpus", 1) != 1 and isinstance(speeds, dict) and "100" not in speeds:
                message = "a job on several GPUs holds them whole: its speed at 100 % is needed"
                yield Contradiction(f"profiles.{gpu_type}.{speed}", message, "a table with 100, for all its GPUs")
            if stray in profile:
                message = f"a job of type {kind} has no {stray}"
                yield Contradiction(f"profiles.{gpu_type}.{stray}", message, f"{speed} only")


Owned = Annotated[str, StringConstraints(pattern=f"^{LABEL}/{LABEL}$")]  # `tenant/name`


GpuIndex = Annotated[int, Field(ge=0, le=100_000)]


class RunningInstance(Spec):
    """A running instance, in the terms of a plan."""

    id: str = Field("", max_length=253, description="Not compared with anything")
    service: Owned = Field(description="tenant/name")
    node: Name = Field(description="Node")
    gpu: GpuIndex | None = Field(None, description="Index of the GPU in its node")
    gpus: Annotated[list[GpuIndex], Field(min_length=2, max_length=8), distinct] | None = Field(
        None, description="Instead of gpu: the indexes of all its GPUs"
    )
    variant: Word = Field(description="Variant of the service's model")
    batch: Annotated[int, Field(ge=1, le=256)] = Field(description="Requests taken at once")
    batch_timeout_ms: NotNegative = Field(0, description="How long it waits for a batch to fill")
    sm_percent: Annotated[int, Field(ge=1, le=100)] = Field(description="Share of the GPU's SMs")
    memory_gib: Positive = Field(description="GPU memory")
    clock_mhz: Positive | None = Field(None, description="Clock of its GPU; the highest when left out")
    rate_per_second: NotNegative = Field(0, description="Requests a second sent to it")
    predicted: dict[str, NotNegative] = Field(default_factory=dict, description="What the plan expected; ignored")


class RunningJob(Spec):
    """A running job, in the terms of a plan, with its remaining work."""

    job: Owned = Field(description="tenant/name")
    node: Name = Field(description="Node")
    gpu: GpuIndex | None = Field(None, description="Index of the GPU in its node")
    gpus: Annotated[list[GpuIndex], Field(min_length=2, max_length=8), distinct] | None = Field(
        None, description="Instead of gpu: the indexes of all its GPUs"
    )
    sm_percent: Annotated[int, Field(ge=1, le=100)] = Field(description="Share of the GPU's SMs")
    memory_gib: Positive = Field(description="GPU memory")
    steps: NotNegative | None = Field(None, description="Steps left")
    requests: NotNegative | None = Field(None, description="Requests left")
    predicted: dict[str, NotNegative] = Field(default_factory=dict, description="What the plan expected; ignored")


class StateSpec(Spec):
    """The running instances and jobs, for solving a file offline; both lists may be empty."""

    now: Moment | None = Field(None, description="The time at which deadlines are judged")
    running: list[RunningInstance] = Field(default_factory=list, description="Instances that run")
    jobs: list[RunningJob] = Field(default_factory=list, description="Jobs that run")

    @classmethod
    def contradictions(cls, spec: Mapping[str, JSON]) -> Iterator[Contradiction]:
        for field, what in (("running", "an instance"), ("jobs", "a job")):
            lines = spec.get(field)
            for index, entry in enumerate(lines if isinstance(lines, list) else ()):
                if not isinstance(entry, dict) or ("gpu" in entry) != ("gpus" in entry):
                    continue
                at = f"{field}[{index}].gpu"
                if "gpu" in entry:
                    yield Contradiction(at, f"{what} has gpu or gpus, not both", "gpu alone, or gpus", entry["gpu"])
                else:
                    yield Contradiction(at, "this field is required", "the index of its GPU, or gpus with all of them")
