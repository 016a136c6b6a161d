"""Fences a GPU that has a fault, and keeps it fenced for longer each time the fault comes back."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agents.policy.health.states import GpuObservation, HealthCause, HealthSettings, HealthState
from agents.policy.health.xids import Weight, meaning
from agents.seams.device import MpsState, Trouble

STANDARD = HealthSettings()
_SLOW = (
    HealthCause.POWER_BRAKE,
    HealthCause.HW_THERMAL,
    HealthCause.HW_SLOWDOWN,
    HealthCause.SW_THERMAL,
)  # the first that applies is named
_OF_MPS = (HealthCause.MPS_FAULT, HealthCause.MPS_DOWN)
_MOST_DOUBLINGS = 30


@dataclass(frozen=True, slots=True)
class GpuFault:
    """What fences."""

    cause: HealthCause
    xid: int = 0
    needs: str = ""


def observe(state: HealthState, seen: GpuObservation, now: float, settings: HealthSettings = STANDARD) -> HealthState:
    """One look at one GPU. `now` in seconds by a clock that does not go backwards."""
    if seen.uuid != state.uuid:
        raise ValueError(f"what was seen of {seen.uuid} says nothing of {state.uuid}")
    now = max(now, state.at)
    if was_reset(state, seen):
        state = returned(state, now, settings)
    fault = _fault(state, seen, settings)
    state = _slowed(_read(state, seen), seen, now, settings)
    for code in seen.xids:
        if meaning(code).weight is Weight.NOTED:
            state = replace(state, noted=code)
    state = _fenced(state, fault, now, settings) if fault else _unfenced(state, now, settings)
    return replace(state, at=now)


def returned(state: HealthState, now: float, settings: HealthSettings = STANDARD) -> HealthState:
    """It was reset, or its node rebooted: what needed that is over, and the back-off runs from now."""
    now = max(now, state.at)
    until = now + back_off(state, settings) if state.cause else state.until
    return replace(state, needs="", noted=0, ongoing=False, until=max(until, state.until), ecc=None, energy_mj=None)


def was_reset(state: HealthState, seen: GpuObservation) -> bool:
    """It was away and is back, or its energy counter has begun anew with the driver."""
    if seen.present and not state.present and seen.reading:
        return True
    energy_mj = seen.reading.energy_mj if seen.reading else None
    return energy_mj is not None and state.energy_mj is not None and energy_mj < state.energy_mj


def back_off(state: HealthState, settings: HealthSettings) -> float:
    """Seconds without the fault before the GPU is used again."""
    base = settings.mps_back_off_seconds if state.cause in _OF_MPS else settings.back_off_seconds
    doublings = min(max(0, state.relapses - 1), _MOST_DOUBLINGS)
    return float(min(base * 2**doublings, settings.longest_back_off_seconds))


# What is there now


def _fault(state: HealthState, seen: GpuObservation, settings: HealthSettings) -> GpuFault | None:
    """The gravest fault of this look."""
    found = [_of_xid(code) for code in seen.xids]
    if not seen.present or seen.trouble is Trouble.LOST:
        found.append(GpuFault(HealthCause.LOST))
    if seen.mps in (MpsState.FAULT, MpsState.DOWN):
        found.append(GpuFault(HealthCause.MPS_FAULT if seen.mps is MpsState.FAULT else HealthCause.MPS_DOWN))
    reading = seen.reading
    if reading and state.ecc is not None and (reading.ecc_uncorrected or 0) > state.ecc:
        found.append(GpuFault(HealthCause.ECC))
    if not reading and state.unread + 1 >= settings.unread:
        found.append(GpuFault(HealthCause.UNREADABLE))
    if reading and reading.temperature_c is not None:
        is_hot = state.cause == HealthCause.HOT and state.ongoing
        if reading.temperature_c >= (settings.cool_c if is_hot else settings.hot_c):
            found.append(GpuFault(HealthCause.HOT))
    real = [one for one in found if one]
    return min(real, key=lambda one: (not one.needs, list(HealthCause).index(one.cause)), default=None)


def _of_xid(code: int) -> GpuFault | None:
    weight = meaning(code).weight
    if weight in (Weight.APPLICATION, Weight.NOTED):
        return None
    return GpuFault(HealthCause.XID, code, "" if weight is Weight.FENCED else weight.value)


def _read(state: HealthState, seen: GpuObservation) -> HealthState:
    state = replace(state, present=seen.present and seen.trouble is not Trouble.LOST)
    reading = seen.reading
    if reading is None:
        return replace(state, unread=state.unread + 1)
    ecc = state.ecc if reading.ecc_uncorrected is None else reading.ecc_uncorrected
    energy_mj = state.energy_mj if reading.energy_mj is None else reading.energy_mj
    return replace(state, unread=0, ecc=ecc, energy_mj=energy_mj)


def _slowed(state: HealthState, seen: GpuObservation, now: float, settings: HealthSettings) -> HealthState:
    """Slowed down for long: degraded. At full speed for longer: no more."""
    if seen.reading is None:
        return state
    cause = next((one for one in _SLOW if one in seen.reading.clock_reasons), None)
    if cause:
        since = now if state.slow_since is None else state.slow_since
        is_slow = state.slowed or now - since >= settings.slow_seconds
        return replace(state, slow_since=since, clear_since=None, slowed=cause.value if is_slow else "")
    since = now if state.clear_since is None else state.clear_since
    is_clear = now - since >= settings.clear_seconds
    return replace(state, slow_since=None, clear_since=since, slowed="" if is_clear else state.slowed)


# What follows


def _fenced(state: HealthState, fault: GpuFault, now: float, settings: HealthSettings) -> HealthState:
    """The fence begins, or goes on: only a fault after it was lifted is a relapse."""
    if not state.cause:
        state = replace(state, relapses=state.relapses + 1)
    if not state.needs or fault.needs:  # what needs a person stays named until it was done
        state = replace(state, cause=fault.cause.value, xid=fault.xid, needs=fault.needs)
    return replace(state, ongoing=True, until=max(state.until, now + back_off(state, settings)))


def _unfenced(state: HealthState, now: float, settings: HealthSettings) -> HealthState:
    """Without a fault: the fence is lifted once its time is over, and good time takes relapses off."""
    state = replace(state, ongoing=False)
    if state.cause:
        if state.needs or now < state.until:
            return state
        return replace(state, cause="", xid=0, good_since=now)
    if state.relapses and now - state.good_since >= settings.decay_seconds:
        return replace(state, relapses=state.relapses - 1, good_since=state.good_since + settings.decay_seconds)
    return state
