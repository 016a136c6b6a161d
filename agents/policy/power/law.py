"""Keeps one GPU's power cap and its instances' SLOs by clock and batch, inside their frames.

Morak's Algorithm 1, with its bands, for a node whose plan has chosen the values already: they are left only while
a limit is broken, and come back when both hold. docs/power.md has the cases in a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from agents.contract import Excursion
from agents.policy.power.estimates import (
    BATCH_EXPONENT,
    BUSIEST,
    IDLE_SHARE,
    at_least,
    at_most,
    clock_that_fits,
    clock_with_room,
    slower_by,
)
from agents.policy.power.knobs import OVER_CAP, OVER_SLO, Knob, excursion, forced, kept, returned
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerMove, PowerState
from agents.policy.power.settings import PowerSettings

LOWER = 0.9  # what a step aims at when the one before it did not suffice


def step(state: PowerState, seen: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """One period of one GPU. The caller sets what differs from what is in force, and keeps the state."""
    late = {one.id: state.late.get(one.id, 0) + 1 for one in seen.instances if (ratio(one) or 0.0) > 1}
    over = is_over(seen)
    patience = 1 if is_held_down(state.clock) else settings.late_periods
    slow = tuple(one for one in seen.instances if late.get(one.id, 0) >= patience)
    is_broken, is_calm = over or bool(slow), not over and not late
    now = replace(
        state,
        clock=kept(state.clock, seen.frame, seen.clocks_mhz) if seen.frame and seen.clocks_mhz else None,
        batches={one.id: kept(state.batches.get(one.id), one.frame) for one in seen.instances if one.frame},
        late=late,
        over=state.over + 1 if over else 0,
        broken=state.broken + 1 if is_broken else 0,
        calm=state.calm + 1 if is_calm else 0,
        good=state.good + 1 if is_calm else 0,
    )
    if over:
        now = less_power(now, seen, settings)
    if slow:
        now = less_latency(now, seen, slow, settings)
    if is_calm:
        now = towards_the_plan(now, seen, settings)
    asks = now.broken > settings.broken_periods or (state.repartition and now.good < settings.calm_periods)
    now = replace(now, repartition=asks)
    return PowerMove(
        now,
        now.clock.value if now.clock else None,
        {name: knob.value for name, knob in now.batches.items()},
        excursions(now, seen.index),
        asks,
    )


# What is seen


def ratio(one: InstancePeriod) -> float | None:
    """Latency over the SLO; None without one, or without requests."""
    if one.latency_ms is None or one.slo_ms <= 0 or not math.isfinite(one.latency_ms):
        return None
    return one.latency_ms / one.slo_ms


def watts(seen: GpuPeriod) -> float | None:
    """The period's peak, where it is a number."""
    return seen.peak_w if seen.peak_w is not None and math.isfinite(seen.peak_w) else None


def is_held_down(clock: Knob | None) -> bool:
    """Below its plan for the cap's sake, perhaps further than it had to be: lateness is then of our making."""
    return clock is not None and clock.reason == OVER_CAP and clock.value < clock.planned


def is_slowed(seen: GpuPeriod) -> bool:
    """Its own power limit holds it below the clock that was set: it would draw more than the cap."""
    return seen.slowed and seen.running_mhz is not None and seen.clock_mhz is not None and (
        seen.running_mhz < seen.clock_mhz
    )  # fmt: skip


def measured_at(clock: Knob, seen: GpuPeriod) -> float:
    """The clock of the period: not ours yet just after a start, or where somebody else has set it."""
    if is_slowed(seen) and seen.running_mhz is not None:
        return seen.running_mhz
    return seen.clock_mhz or seen.running_mhz or clock.value


def growth(seen: GpuPeriod) -> float:
    """How much more the instances may draw once they are slower: all of the time, in full batches."""
    told = [one.busy for one in seen.instances if one.busy is not None and 0 <= one.busy <= 1]
    busy = sum(told) / len(told) if told and len(told) == len(seen.instances) else 1.0
    means = [(one.batch, one.batch_mean) for one in seen.instances if one.batch_mean is not None]
    fuller = [max(1.0, batch / mean) for batch, mean in means if mean >= 1]
    return math.pow(max(fuller, default=1.0), BATCH_EXPONENT) / min(1.0, max(0.05, busy))


def is_over(seen: GpuPeriod) -> bool:
    peak = watts(seen)
    return seen.cap_w is not None and ((peak is not None and peak > seen.cap_w) or is_slowed(seen))


def has_watts(seen: GpuPeriod, settings: PowerSettings, factor: float = 1.0) -> bool:
    """Whether the GPU may draw `factor` times what it draws."""
    peak = watts(seen)
    if seen.cap_w is None:
        return True
    return peak is not None and not is_slowed(seen) and peak * factor <= settings.alpha * seen.cap_w


# What is done


def less_power(state: PowerState, seen: GpuPeriod, settings: PowerSettings) -> PowerState:
    """To the clock that fits, in one step; where the clock cannot go lower, to half the batches."""
    clock, peak, cap = state.clock, watts(seen), seen.cap_w or 0.0
    if clock and clock.value > clock.lowest:
        clocks = [one for one in seen.clocks_mhz if clock.lowest <= one <= clock.highest]
        at = measured_at(clock, seen)
        idle = seen.idle_w if seen.idle_w is not None else IDLE_SHARE * cap
        # A step that did not suffice is followed by one that aims lower.
        target = settings.alpha * LOWER ** (state.over - 1) * cap
        # Behind the hardware's own limit the likely step will do: nothing passes the cap if it does not suffice.
        more = 1.0 if seen.limited else growth(seen)
        fits = clock_that_fits(at, max(cap, peak or 0.0), target, idle, more)
        value = at_most(clocks, min(fits, clock.value - 1 if at <= clock.value else clock.value), clock.lowest)
        if value != clock.value:
            clock = _forced(clock, value, OVER_CAP, seen, settings)
        return replace(state, clock=clock, calm=0)
    batches = {
        name: _forced(knob, max(knob.lowest, knob.value // 2), OVER_CAP, seen, settings)
        if knob.value > knob.lowest
        else knob
        for name, knob in state.batches.items()
    }
    return replace(state, batches=batches, calm=0)


def less_latency(
    state: PowerState, seen: GpuPeriod, slow: Sequence[InstancePeriod], settings: PowerSettings
) -> PowerState:
    """A higher clock where there are watts for it; else another batch, by what the time goes to."""
    clock, peak = state.clock, watts(seen)
    if clock and clock.value < clock.highest and has_watts(seen, settings):
        if clock.age < (1 if is_held_down(clock) else settings.late_periods):
            return state  # what it did is not seen yet
        clocks = [one for one in seen.clocks_mhz if clock.lowest <= one <= clock.highest]
        room = float(clock.highest)
        if seen.cap_w is not None and peak is not None:
            room = min(room, clock_with_room(clock.value, peak, settings.alpha * seen.cap_w, seen.idle_w or 0.0))
        needed = clock.value * max(ratio(one) or 1.0 for one in slow) / settings.beta
        value = min(at_least(clocks, needed, clock.highest), at_most(clocks, room, clock.value))
        if value > clock.value:
            return replace(state, clock=_forced(clock, value, OVER_SLO, seen, settings), calm=0)
    batches = dict(state.batches)
    for one in slow:
        knob = batches.get(one.id)
        if knob and knob.age >= settings.late_periods:
            value = better_batch(one, knob, has_watts(seen, settings, 2**BATCH_EXPONENT))
            if value != knob.value:
                batches[one.id] = _forced(knob, value, OVER_SLO, seen, settings)
    return replace(state, batches=batches, calm=0)


def better_batch(one: InstancePeriod, knob: Knob, has_room: bool) -> int:
    """Larger where requests wait for their turn, smaller where they wait for their batch to be computed.

    A smaller batch yields less throughput: not where the instance is too busy to bear that.
    """
    waits = one.queue is not None and one.queue >= knob.value
    if waits or (one.busy is not None and one.busy >= BUSIEST):
        return min(knob.highest, 2 * knob.value) if has_room else knob.value
    if one.busy is not None and one.busy * 2**BATCH_EXPONENT >= BUSIEST:
        return knob.value
    return max(knob.lowest, knob.value // 2)


def towards_the_plan(state: PowerState, seen: GpuPeriod, settings: PowerSettings) -> PowerState:
    """One knob at a time, as far as both limits will hold by the estimates; batches first."""
    by_id = {one.id: one for one in seen.instances}
    for name, knob in state.batches.items():
        if knob.value != knob.planned and state.calm >= knob.wait:
            value = _batch_back(knob, by_id[name], seen, settings)
            if value != knob.value:
                return replace(state, batches={**state.batches, name: returned(knob, value)}, calm=0)
    clock = state.clock
    if clock and clock.value != clock.planned and state.calm >= clock.wait:
        value = _clock_back(clock, seen, settings)
        if value != clock.value:
            return replace(state, clock=returned(clock, value), calm=0)
    return state


def _batch_back(knob: Knob, one: InstancePeriod, seen: GpuPeriod, settings: PowerSettings) -> int:
    value = min(knob.planned, 2 * knob.value) if knob.value < knob.planned else max(knob.planned, knob.value // 2)
    share = value / knob.value
    if value > knob.value:
        fits = (ratio(one) or 0.0) * share <= settings.beta and has_watts(seen, settings, share**BATCH_EXPONENT)
    else:
        fits = (ratio(one) or 0.0) <= settings.beta and (one.busy or 0.0) * share**-BATCH_EXPONENT < BUSIEST
    return value if fits else knob.value


def _clock_back(clock: Knob, seen: GpuPeriod, settings: PowerSettings) -> int:
    peak = watts(seen)
    if clock.value < clock.planned:
        clocks = [one for one in seen.clocks_mhz if clock.value <= one <= clock.planned]
        if not has_watts(seen, settings):
            return clock.value
        room = float("inf")
        if seen.cap_w is not None and peak is not None:
            room = clock_with_room(clock.value, peak, settings.alpha * seen.cap_w, seen.idle_w or 0.0)
        return at_most(clocks, room, clock.value)
    clocks = [one for one in seen.clocks_mhz if clock.planned <= one <= clock.value]
    fitting = [
        lower for lower in clocks if all(_bears(one, slower_by(clock.value, lower), settings) for one in seen.instances)
    ]
    return min(fitting, default=clock.value)


def _bears(one: InstancePeriod, factor: float, settings: PowerSettings) -> bool:
    return (ratio(one) or 0.0) * factor <= settings.beta and (one.busy or 0.0) * factor**0.5 < BUSIEST


def _forced(knob: Knob, value: int, reason: str, seen: GpuPeriod, settings: PowerSettings) -> Knob:
    return forced(knob, value, reason, seen.at, settings.calm_periods, settings.longest_wait_periods)


def excursions(state: PowerState, gpu: int) -> tuple[Excursion, ...]:
    """All knobs away from their planned values."""
    found = [excursion(state.clock, "clockMhz", gpu)] if state.clock else []
    found += [excursion(knob, "batch", gpu, name) for name, knob in state.batches.items()]
    return tuple(one for one in found if one)
