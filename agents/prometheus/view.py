"""What the agent shows of itself at one moment; whoever fills it in has asked the devices already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agents.seams.device import GpuDevice, GpuReading


@dataclass(frozen=True, slots=True)
class GpuView:
    """One GPU as it is shown; no reading: it could not be read."""

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
    sm_count: int | None = None  # as seen inside
    memory_limit_gib: float | None = None
    memory_gib: float | None = None  # as the device counts it
    requests: int | None = None
    errors: int | None = None
    busy_seconds: float | None = None
    steps: float | None = None


@dataclass(frozen=True, slots=True)
class AgentView:
    """All that is shown, at one moment."""

    hostname: str
    agent_version: str = ""
    epoch: int = 0
    generation: int = 0
    converged: bool = True  # what runs is what is assigned
    stale_assignments: int = 0
    silent_seconds: float | None = None  # since the control plane last answered; None: it never did
    excursions: int = 0  # knobs away from their planned value now
    held_back: Mapping[str, int] = field(default_factory=dict)  # instances now, by reason
    handovers: Mapping[str, int] = field(default_factory=dict)  # since the agent started, by outcome
    gpus: Sequence[GpuView] = ()
    copies: Sequence[CopyView] = ()
