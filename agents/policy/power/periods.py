"""What the power loop is told of one GPU each period, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from agents.contract import Excursion, Frame
from agents.policy.power.knobs import Knob


@dataclass(frozen=True, slots=True)
class InstancePeriod:
    """One instance in the period that ended. None: not known, or nothing was served."""

    id: str
    batch: int = 1  # the largest that it takes now
    frame: Frame | None = None  # of its batch; None: not ours to change
    latency_ms: float | None = None  # at its percentile
    slo_ms: float = 0.0  # 0: none, as for a job
    queue: float | None = None  # requests waiting, on average
    batch_mean: float | None = None  # as computed
    busy: float | None = None  # part of the period in which it computed, 0..1


@dataclass(frozen=True, slots=True)
class GpuPeriod:
    """One GPU in the period that ended."""

    index: int
    at: datetime
    peak_w: float | None = None
    mean_w: float | None = None
    cap_w: float | None = None  # None: no cap
    idle_w: float | None = None  # with nothing to do; None: not known
    clock_mhz: int | None = None  # as it is held now; None: it is free, or cannot be read
    frame: Frame | None = None  # of its clock; None: not ours to change
    clocks_mhz: tuple[int, ...] = ()  # supported, ascending; empty: the clock cannot be held
    running_mhz: float | None = None  # as measured; below `clock_mhz` when the hardware slows it down
    slowed: bool = False  # by its power limit, as its clock reasons say: power_cap
    limited: bool = False  # its own power limit is set to the cap
    instances: tuple[InstancePeriod, ...] = ()


@dataclass(frozen=True, slots=True)
class PowerState:
    """What the loop remembers of one GPU from period to period. A new one remembers nothing."""

    clock: Knob | None = None
    batches: Mapping[str, Knob] = field(default_factory=dict)
    late: Mapping[str, int] = field(default_factory=dict)  # periods in a row over the SLO, by instance
    over: int = 0  # periods in a row over the cap
    broken: int = 0  # periods in a row in which a limit was not kept
    calm: int = 0  # periods in a row in which both were, since a knob last moved
    good: int = 0  # the same, whatever moved
    repartition: bool = False


@dataclass(frozen=True, slots=True)
class PowerMove:
    """What shall be in force until the next period, and what to say of it."""

    state: PowerState
    clock_mhz: int | None  # to hold; None: leave the clock alone
    batches: Mapping[str, int]  # by instance, those whose batch is ours
    excursions: tuple[Excursion, ...] = ()  # knobs away from their planned values
    repartition: bool = False  # the limits cannot be kept by clock and batch
