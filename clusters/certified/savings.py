"""What is saved at level L2, as a plan has it that keeps every SLO by the profiles of its models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from clusters.estate import WorkloadName


@dataclass(frozen=True, slots=True)
class PlannedWorkload:
    """How a workload stands in the plan: replicas, the GPUs that they touch, and the SMs of those that they have."""

    workload: WorkloadName
    replicas: int
    gpus: int
    sm_gpus: float  # parts of GPUs, added up
    rate_per_second: float


@dataclass(frozen=True, slots=True)
class CertifiedSavings:
    """Level L2: the nodes that the plan does not need, and what no plan for these profiles and rules exceeds."""

    nano_per_hour: int
    limit_nano_per_hour: int | None  # None: no bound was proved
    nodes: tuple[str, ...]  # that can go
    workloads: tuple[PlannedWorkload, ...]
    staying: Mapping[WorkloadName, str]  # and why
    method: str
