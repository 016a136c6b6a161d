"""The power loop's values: one GPU's period, the state between periods, and the loop's move."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agents.contract.assignments import Frame
from agents.contract.reports import Excursion
from agents.policy.power.knobs import Knob


@dataclass(frozen=True, slots=True)
class InstancePeriod:
    """One instance in the last period. None: not known, or nothing was served."""

    id: str
    batch: int = 1  # the largest that it accepts now
    frame: Frame | None = None  # the range of its batch; None: not ours to change
    latency_ms: float | None = None  # at its percentile
    slo_ms: float = 0.0  # 0: none, as for a job
    queue: float | None = None  # requests waiting, on average
    batch_mean: float | None = None  # as computed
    busy: float | None = None  # the share of the period in which it computed


@dataclass(frozen=True, slots=True)
class GpuPeriod:
    """One GPU in the last period."""

    index: int
    at: datetime
    peak_w: float | None = None
    mean_w: float | None = None
    cap_w: float | None = None  # None: no cap
    idle_w: float | None = None  # None: not known
    clock_mhz: int | None = None  # as locked now; None: not locked, or not readable
    frame: Frame | None = None  # the range of its clock; None: not ours to change
    clocks_mhz: tuple[int, ...] = ()  # supported, ascending; empty: the clock cannot be locked
    running_mhz: float | None = None  # as measured; below `clock_mhz` when the hardware slows it down
    slowed: bool = False  # by its power limit: its clock reasons contain power_cap
    limited: bool = False  # its hardware power limit is set to the cap
    instances: tuple[InstancePeriod, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerState:
    """The loop's state of one GPU between periods; a new one is empty."""

    clock: Knob | None = None
    batches: Mapping[str, Knob] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)  # periods in a row over the SLO, by instance
    over: int = 0  # periods in a row over the cap
    broken: int = 0  # periods in a row with a limit broken
    calm: int = 0  # periods in a row with both limits kept, since a knob last moved
    good: int = 0  # periods in a row with both limits kept, even if a knob moved
    repartition: bool = False


@dataclass(frozen=True, slots=True)
class PowerMove:
    """The settings until the next period, and what to report."""

    state: PowerState
    clock_mhz: int | None  # to lock; None: leave the clock alone
    batches: Mapping[str, int]  # by instance, where the batch is ours to change
    excursions: tuple[Excursion, ...] = ()  # knobs away from their planned values
    repartition: bool = False  # clock and batch alone cannot keep the limits
