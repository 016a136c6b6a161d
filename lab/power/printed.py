"""Morak's Algorithm 1 exactly as printed: the baseline of our law.

Its default values (line 1) are the plan's. The paper has them small, "e.g. 1 and 600 MHz"; if latency is above its
limit there, the algorithm never leaves them, as it has no branch for that. The pseudo code does not say how far a step
goes: here to the next supported clock, and to `growth` times the batch or as much less.
"""

from __future__ import annotations

from dataclasses import replace

from agents.policy.power.knobs import Knob, age_knob
from agents.policy.power.measurements import ratio, watts
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerMove, PowerState
from agents.policy.power.settings import PowerSettings


def step(state: PowerState, period: GpuPeriod, settings: PowerSettings, growth: float = 2.0) -> PowerMove:
    """Runs one period; comments name the algorithm's lines."""
    # line 1: `kept` starts at the planned values
    clock = age_knob(state.clock, period.frame, period.clocks_mhz) if period.frame and period.clocks_mhz else None
    batches = {
        instance.id: age_knob(state.batches.get(instance.id), instance.frame)
        for instance in period.instances
        if instance.frame
    }
    peak, cap = watts(period) or 0.0, period.cap_w if period.cap_w is not None else float("inf")
    turn = 0  # of the clock; line 16: one change a period
    for instance in period.instances:
        latency = ratio(instance)
        if latency is None:
            continue
        near, early = settings.beta <= latency <= 1, latency < settings.beta
        if peak <= settings.alpha * cap:  # line 4
            if near:  # lines 5, 6
                turn = turn or 1
            elif early:  # lines 7, 8
                batches = _change_batch(batches, instance, growth)
        elif peak > cap:  # line 11
            if near:  # lines 12, 13
                batches = _change_batch(batches, instance, 1 / growth)
            elif early:  # lines 14, 15
                turn = turn or -1
    if clock and turn:
        clock = _notch(clock, period, turn)
    broken = peak > cap or any((ratio(instance) or 0.0) > 1 for instance in period.instances)
    return _move(state, clock, batches, failed=state.broken + 1 if broken else 0)


def _change_batch(batches: dict[str, Knob], instance: InstancePeriod, factor: float) -> dict[str, Knob]:
    knob = batches.get(instance.id)
    if knob is None:
        return batches
    value = (
        max(knob.value + 1, int(knob.value * factor)) if factor > 1 else min(knob.value - 1, int(knob.value * factor))
    )
    value = min(knob.highest, max(knob.lowest, value))
    return {**batches, instance.id: replace(knob, value=value)}


def _notch(clock: Knob, period: GpuPeriod, turn: int) -> Knob:
    inside = [mhz for mhz in period.clocks_mhz if clock.lowest <= mhz <= clock.highest]
    if turn > 0:
        return replace(clock, value=min((mhz for mhz in inside if mhz > clock.value), default=clock.value))
    return replace(clock, value=max((mhz for mhz in inside if mhz < clock.value), default=clock.value))


def _move(state: PowerState, clock: Knob | None, batches: dict[str, Knob], failed: int) -> PowerMove:
    state = replace(state, clock=clock, batches=batches, broken=failed)
    named = {name: knob.value for name, knob in batches.items()}
    return PowerMove(state, clock.value if clock else None, named, (), failed >= 3)  # line 18
