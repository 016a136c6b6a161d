"""Keeps one GPU's power cap and its instances' SLOs by clock and batch, inside their frames.

Morak's Algorithm 1, with its bands, for a node whose plan has already chosen the values: knobs leave them only while a
limit is broken, and return when both hold. docs/power.md has the cases in a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agents.contract.reports import Excursion
from agents.policy.power.estimates import (
    BATCH_EXPONENT,
    BUSIEST_SHARE,
    IDLE_SHARE,
    clock_that_fits,
    clock_with_room,
    find_highest_clock,
    find_lowest_clock,
    slower_by,
)
from agents.policy.power.knobs import OVER_CAP, OVER_SLO, Knob, age_knob, excursion, force_knob, return_knob
from agents.policy.power.measurements import find_clock_of, growth, has_watts, is_held_down, is_over, ratio, watts
from agents.policy.power.periods import GpuPeriod, InstancePeriod, PowerMove, PowerState
from agents.policy.power.settings import PowerSettings

LOWER_SHARE = 0.9  # of the target, aimed at by each step after one that did not suffice


def step(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerMove:
    """Runs one period of one GPU. The caller sets what differs from what is in force, and keeps the state."""
    late = {
        instance.id: state.late.get(instance.id, 0) + 1 for instance in period.instances if (ratio(instance) or 0.0) > 1
    }
    over = is_over(period)
    patience = 1 if is_held_down(state.clock) else settings.late_periods
    slow = tuple(instance for instance in period.instances if late.get(instance.id, 0) >= patience)
    is_broken, is_calm = over or bool(slow), not over and not late
    now = replace(
        state,
        clock=age_knob(state.clock, period.frame, period.clocks_mhz) if period.frame and period.clocks_mhz else None,
        batches={
            instance.id: age_knob(state.batches.get(instance.id), instance.frame)
            for instance in period.instances
            if instance.frame
        },
        late=late,
        over=state.over + 1 if over else 0,
        broken=state.broken + 1 if is_broken else 0,
        calm=state.calm + 1 if is_calm else 0,
        good=state.good + 1 if is_calm else 0,
    )
    if over:
        now = less_power(now, period, settings)
    if slow:
        now = less_latency(now, period, slow, settings)
    if is_calm:
        now = towards_the_plan(now, period, settings)
    asks = now.broken > settings.broken_periods or (state.repartition and now.good < settings.calm_periods)
    now = replace(now, repartition=asks)
    return PowerMove(
        now,
        now.clock.value if now.clock else None,
        {name: knob.value for name, knob in now.batches.items()},
        excursions(now, period.index),
        asks,
    )


def less_power(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerState:
    """Lowers the clock to one that fits, in one step; if it cannot go lower, halves the batches."""
    clock, peak, cap = state.clock, watts(period), period.cap_w or 0.0
    if clock and clock.value > clock.lowest:
        clocks = [mhz for mhz in period.clocks_mhz if clock.lowest <= mhz <= clock.highest]
        at = find_clock_of(clock, period)
        idle = period.idle_w if period.idle_w is not None else IDLE_SHARE * cap
        # After a step that did not suffice, aim lower.
        target = settings.alpha * LOWER_SHARE ** (state.over - 1) * cap
        # With the hardware limit at the cap the likely step is enough: if it does not suffice, the cap still holds.
        more = 1.0 if period.limited else growth(period)
        fits = clock_that_fits(at, max(cap, peak or 0.0), target, idle, more)
        value = find_highest_clock(
            clocks, min(fits, clock.value - 1 if at <= clock.value else clock.value), clock.lowest
        )
        if value != clock.value:
            clock = _force(clock, value, OVER_CAP, period, settings)
        return replace(state, clock=clock, calm=0)
    batches = {
        name: _force(knob, max(knob.lowest, knob.value // 2), OVER_CAP, period, settings)
        if knob.value > knob.lowest
        else knob
        for name, knob in state.batches.items()
    }
    return replace(state, batches=batches, calm=0)


def less_latency(
    state: PowerState, period: GpuPeriod, slow: Sequence[InstancePeriod], settings: PowerSettings
) -> PowerState:
    """Raises the clock if there are watts for it; else changes the batch, by what requests wait for."""
    clock, peak = state.clock, watts(period)
    if clock and clock.value < clock.highest and has_watts(period, settings):
        if clock.age < (1 if is_held_down(clock) else settings.late_periods):
            return state  # its effect does not show yet
        clocks = [mhz for mhz in period.clocks_mhz if clock.lowest <= mhz <= clock.highest]
        room = float(clock.highest)
        if period.cap_w is not None and peak is not None:
            room = min(room, clock_with_room(clock.value, peak, settings.alpha * period.cap_w, period.idle_w or 0.0))
        needed = clock.value * max(ratio(instance) or 1.0 for instance in slow) / settings.beta
        value = min(find_lowest_clock(clocks, needed, clock.highest), find_highest_clock(clocks, room, clock.value))
        if value > clock.value:
            return replace(state, clock=_force(clock, value, OVER_SLO, period, settings), calm=0)
    batches = dict(state.batches)
    for instance in slow:
        knob = batches.get(instance.id)
        if knob and knob.age >= settings.late_periods:
            value = better_batch(instance, knob, has_watts(period, settings, 2**BATCH_EXPONENT))
            if value != knob.value:
                batches[instance.id] = _force(knob, value, OVER_SLO, period, settings)
    return replace(state, batches=batches, calm=0)


def better_batch(instance: InstancePeriod, knob: Knob, has_room: bool) -> int:
    """Returns a larger batch if requests wait in the queue, a smaller one if they wait for their batch to be computed.

    A smaller batch costs throughput, so a very busy instance does not get one.
    """
    waits = instance.queue is not None and instance.queue >= knob.value
    if waits or (instance.busy is not None and instance.busy >= BUSIEST_SHARE):
        return min(knob.highest, 2 * knob.value) if has_room else knob.value
    if instance.busy is not None and instance.busy * 2**BATCH_EXPONENT >= BUSIEST_SHARE:
        return knob.value
    return max(knob.lowest, knob.value // 2)


def towards_the_plan(state: PowerState, period: GpuPeriod, settings: PowerSettings) -> PowerState:
    """Returns one knob towards its plan, as far as both limits hold by the estimates; batches first."""
    by_id = {instance.id: instance for instance in period.instances}
    for name, knob in state.batches.items():
        if knob.value != knob.planned and state.calm >= knob.wait:
            value = _batch_back(knob, by_id[name], period, settings)
            if value != knob.value:
                return replace(state, batches={**state.batches, name: return_knob(knob, value)}, calm=0)
    clock = state.clock
    if clock and clock.value != clock.planned and state.calm >= clock.wait:
        value = _clock_back(clock, period, settings)
        if value != clock.value:
            return replace(state, clock=return_knob(clock, value), calm=0)
    return state


def _batch_back(knob: Knob, instance: InstancePeriod, period: GpuPeriod, settings: PowerSettings) -> int:
    value = min(knob.planned, 2 * knob.value) if knob.value < knob.planned else max(knob.planned, knob.value // 2)
    share = value / knob.value
    if value > knob.value:
        fits = (ratio(instance) or 0.0) * share <= settings.beta and has_watts(period, settings, share**BATCH_EXPONENT)
    else:
        fits = (ratio(instance) or 0.0) <= settings.beta and (
            instance.busy or 0.0
        ) * share**-BATCH_EXPONENT < BUSIEST_SHARE
    return value if fits else knob.value


def _clock_back(clock: Knob, period: GpuPeriod, settings: PowerSettings) -> int:
    peak = watts(period)
    if clock.value < clock.planned:
        clocks = [mhz for mhz in period.clocks_mhz if clock.value <= mhz <= clock.planned]
        if not has_watts(period, settings):
            return clock.value
        room = float("inf")
        if period.cap_w is not None and peak is not None:
            room = clock_with_room(clock.value, peak, settings.alpha * period.cap_w, period.idle_w or 0.0)
        return find_highest_clock(clocks, room, clock.value)
    clocks = [mhz for mhz in period.clocks_mhz if clock.planned <= mhz <= clock.value]
    fitting = [
        lower
        for lower in clocks
        if all(_bears(instance, slower_by(clock.value, lower), settings) for instance in period.instances)
    ]
    return min(fitting, default=clock.value)


def _bears(instance: InstancePeriod, factor: float, settings: PowerSettings) -> bool:
    return (ratio(instance) or 0.0) * factor <= settings.beta and (instance.busy or 0.0) * factor**0.5 < BUSIEST_SHARE


def _force(knob: Knob, value: int, reason: str, period: GpuPeriod, settings: PowerSettings) -> Knob:
    return force_knob(knob, value, reason, period.at, settings.calm_periods, settings.longest_wait_periods)


def excursions(state: PowerState, gpu: int) -> tuple[Excursion, ...]:
    """Returns the report of every knob away from its planned value."""
    found = [excursion(state.clock, "clockMhz", gpu)] if state.clock else []
    found += [excursion(knob, "batch", gpu, name) for name, knob in state.batches.items()]
    return tuple(report for report in found if report)
