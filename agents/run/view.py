"""The agent's figures at one moment, already read from the devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.seams.device import GpuDevice, GpuReading


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU's figures; without a reading if it could not be read."""

    gpu: GpuDevice
    reading: GpuReading | None
    last_xid: int = 0
    healthy: bool = True
    fenced: bool = False
    cap_w: float | None = None  # in force
    locked_clock_mhz: float | None = None


@dataclass(frozen=True, slots=True)
class CopyView:
    """One process of an instance."""

    copy: str
    instance: str
    gpu: int
    uuid: str
    stage: str
    tenant: str = ""
    service: str = ""
    job: str = ""
    sm_percent: float | None = None  # its limit
    sm_count: int | None = None  # as the process sees it
    memory_limit_gib: float | None = None
    memory_gib: float | None = None  # as the device counts it
    requests: int | None = None
    errors: int | None = None
    busy_seconds: float | None = None
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """All figures at one moment."""

    hostname: str
    agent_version: str = ""
    epoch: int = 0
    generation: int = 0
    converged: bool = True  # the node runs what is assigned
    stale_assignments: int = 0
    silent_seconds: float | None = None  # since the control plane last answered; None: never
    excursions: int = 0  # knobs away from their planned value
    held_back: Mapping[str, int] = field(default_factory=dict)  # of instances, by reason
    handovers: Mapping[str, int] = field(default_factory=dict)  # since the agent started, by outcome
    gpus: Sequence[GpuView] = ()
    copies: Sequence[CopyView] = ()
