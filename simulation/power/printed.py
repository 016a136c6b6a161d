"""Morak's Algorithm 1 exactly as printed: the baseline of our law.

Its default values (line 1) are the plan's. The paper has them small, "e.g. 1 and 600 MHz"; if latency is above its
limit there, the algorithm never leaves them, as it has no branch for that. The pseudo code does not say how far a step
goes: here to the next supported clock, and to twice or half the batch.
"""

from __future__ import annotations

from dataclasses import replace

from agents.policy.power.knobs import Knob, kept
from agents.policy.power.law import ratio, watts
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerMove, PowerState
from agents.policy.power.settings import PowerSettings


def step(state: PowerState, seen: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Runs one period; comments name the algorithm's lines."""
    # line 1: `kept` starts at the planned values
    clock = kept(state.clock, seen.frame, seen.clocks_mhz) if seen.frame and seen.clocks_mhz else None
    batches = {one.id: kept(state.batches.get(one.id), one.frame) for one in seen.instances if one.frame}
    peak, cap = watts(seen) or 0.0, seen.cap_w if seen.cap_w is not None else float("inf")
    turn = 0  # of the clock; line 16: one change a period
    for one in seen.instances:
        latency = ratio(one)
        if latency is None:
            continue
        near, early = settings.beta <= latency <= 1, latency < settings.beta
        if peak <= settings.alpha * cap:  # line 4
            if near:  # lines 5, 6
                turn = turn or 1
            elif early:  # lines 7, 8
                batches = _with(batches, one, 2)
        elif peak > cap:  # line 11
            if near:  # lines 12, 13
                batches = _with(batches, one, 0.5)
            elif early:  # lines 14, 15
                turn = turn or -1
    if clock and turn:
        clock = _notch(clock, seen, turn)
    broken = peak > cap or any((ratio(one) or 0.0) > 1 for one in seen.instances)
    return _move(state, clock, batches, failed=state.broken + 1 if broken else 0)


def _with(batches: dict[str, Knob], one: InstancePeriod, factor: float) -> dict[str, Knob]:
    knob = batches.get(one.id)
    if knob is None:
        return batches
    value = min(knob.highest, max(knob.lowest, int(knob.value * factor)))
    return {**batches, one.id: replace(knob, value=value)}


def _notch(clock: Knob, seen: GpuPeriod, turn: int) -> Knob:
    inside = [one for one in seen.clocks_mhz if clock.lowest <= one <= clock.highest]
    if turn > 0:
        return replace(clock, value=min((one for one in inside if one > clock.value), default=clock.value))
    return replace(clock, value=max((one for one in inside if one < clock.value), default=clock.value))


def _move(state: PowerState, clock: Knob | None, batches: dict[str, Knob], failed: int) -> PowerMove:
    state = replace(state, clock=clock, batches=batches, broken=failed)
    named = {name: knob.value for name, knob in batches.items()}
    return PowerMove(state, clock.value if clock else None, named, (), failed >= 3)  # line 18
