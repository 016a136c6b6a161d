"""Reads from a period of a GPU how it keeps its cap and its SLOs."""

from __future__ import annotations

import math

from agents.policy.power.estimates import (
    BATCH_EXPONENT,
)
from agents.policy.power.knobs import OVER_CAP, Knob
from agents.policy.power.periods import GpuPeriod, InstancePeriod
from agents.policy.power.settings import PowerSettings


def ratio(instance: InstancePeriod) -> float | None:
    """Returns latency divided by the SLO; None without an SLO or requests."""
    if instance.latency_ms is None or instance.slo_ms <= 0 or not math.isfinite(instance.latency_ms):
        return None
    return instance.latency_ms / instance.slo_ms


def watts(period: GpuPeriod) -> float | None:
    """Returns the period's peak watts, if finite."""
    return period.peak_w if period.peak_w is not None and math.isfinite(period.peak_w) else None


def is_held_down(clock: Knob | None) -> bool:
    """Returns whether the clock is below its plan because of the cap, perhaps too far: lateness is then our doing."""
    return clock is not None and clock.reason == OVER_CAP and clock.value < clock.planned


def is_slowed(period: GpuPeriod) -> bool:
    """Returns whether the hardware power limit holds the GPU below its set clock: it would draw more than the cap."""
    return period.slowed and period.running_mhz is not None and period.clock_mhz is not None and (
        period.running_mhz < period.clock_mhz
    )  # fmt: skip


def find_clock_of(clock: Knob, period: GpuPeriod) -> float:
    """Returns the clock of the period, which differs from ours just after a start or when others have set it."""
    if is_slowed(period) and period.running_mhz is not None:
        return period.running_mhz
    return period.clock_mhz or period.running_mhz or clock.value


def growth(period: GpuPeriod) -> float:
    """Returns how much more the instances may draw once they are slower: all of the time, in full batches."""
    shares = [instance.busy for instance in period.instances if instance.busy is not None and 0 <= instance.busy <= 1]
    busy = sum(shares) / len(shares) if shares and len(shares) == len(period.instances) else 1.0
    means = [(instance.batch, instance.batch_mean) for instance in period.instances if instance.batch_mean is not None]
    fuller = [max(1.0, batch / mean) for batch, mean in means if mean >= 1]
    return math.pow(max(fuller, default=1.0), BATCH_EXPONENT) / min(1.0, max(0.05, busy))


def is_over(period: GpuPeriod) -> bool:
    peak = watts(period)
    return period.cap_w is not None and ((peak is not None and peak > period.cap_w) or is_slowed(period))


def has_watts(period: GpuPeriod, settings: PowerSettings, factor: float = 1.0) -> bool:
    """Returns whether the GPU may draw `factor` times what it draws now."""
    peak = watts(period)
    if period.cap_w is None:
        return True
    return peak is not None and not is_slowed(period) and peak * factor <= settings.alpha * period.cap_w
