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
    """A fault that fences a GPU."""

    cause: HealthCause
    xid: int = 0
    needs: str = ""


def observe(
    state: HealthState, observed: GpuObservation, now: float, settings: HealthSettings = STANDARD
) -> HealthState:
    """Returns a GPU's state after another observation; `now` is in seconds of a monotonic clock."""
    if observed.uuid != state.uuid:
        raise ValueError(f"an observation of GPU {observed.uuid} cannot update the state of GPU {state.uuid}")
    now = max(now, state.at)
    if was_reset(state, observed):
        state = note_reset(state, now, settings)
    fault = _fault(state, observed, settings)
    state = _mark_slowed(_read(state, observed), observed, now, settings)
    for code in observed.xids:
        if meaning(code).weight is Weight.NOTED:
            state = replace(state, noted=code)
    state = _fence(state, fault, now, settings) if fault else _lift_fence(state, now, settings)
    return replace(state, at=now)


def note_reset(state: HealthState, now: float, settings: HealthSettings) -> HealthState:
    """Returns the state after a reset or reboot: what needed it is over, and the back-off runs from now."""
    now = max(now, state.at)
    until = now + back_off(state, settings) if state.cause else state.until
    return replace(state, needs="", noted=0, ongoing=False, until=max(until, state.until), ecc=None, energy_mj=None)


def was_reset(state: HealthState, observed: GpuObservation) -> bool:
    """Returns whether the GPU was absent and is back, or its energy counter has restarted with the driver."""
    if observed.present and not state.present and observed.reading:
        return True
    energy_mj = observed.reading.energy_mj if observed.reading else None
    return energy_mj is not None and state.energy_mj is not None and energy_mj < state.energy_mj


def back_off(state: HealthState, settings: HealthSettings) -> float:
    """Returns the seconds without the fault before the GPU is used again."""
    base = settings.mps_back_off_seconds if state.cause in _OF_MPS else settings.back_off_seconds
    doublings = min(max(0, state.relapses - 1), _MOST_DOUBLINGS)
    return float(min(base * 2**doublings, settings.longest_back_off_seconds))


# The observation


def _fault(state: HealthState, observed: GpuObservation, settings: HealthSettings) -> GpuFault | None:
    """Returns the gravest fault of this observation."""
    found = [_find_fault(code) for code in observed.xids]
    if not observed.present or observed.trouble is Trouble.LOST:
        found.append(GpuFault(HealthCause.LOST))
    if observed.mps in (MpsState.FAULT, MpsState.DOWN):
        found.append(GpuFault(HealthCause.MPS_FAULT if observed.mps is MpsState.FAULT else HealthCause.MPS_DOWN))
    reading = observed.reading
    if reading and state.ecc is not None and (reading.ecc_uncorrected or 0) > state.ecc:
        found.append(GpuFault(HealthCause.ECC))
    if not reading and state.unread + 1 >= settings.unread:
        found.append(GpuFault(HealthCause.UNREADABLE))
    if reading and reading.temperature_c is not None:
        is_hot = state.cause == HealthCause.HOT and state.ongoing
        if reading.temperature_c >= (settings.cool_c if is_hot else settings.hot_c):
            found.append(GpuFault(HealthCause.HOT))
    real = [fault for fault in found if fault]
    return min(real, key=lambda fault: (not fault.needs, list(HealthCause).index(fault.cause)), default=None)


def _find_fault(code: int) -> GpuFault | None:
    weight = meaning(code).weight
    if weight in (Weight.APPLICATION, Weight.NOTED):
        return None
    return GpuFault(HealthCause.XID, code, "" if weight is Weight.FENCED else weight.value)


def _read(state: HealthState, observed: GpuObservation) -> HealthState:
    state = replace(state, present=observed.present and observed.trouble is not Trouble.LOST)
    reading = observed.reading
    if reading is None:
        return replace(state, unread=state.unread + 1)
    ecc = state.ecc if reading.ecc_uncorrected is None else reading.ecc_uncorrected
    energy_mj = state.energy_mj if reading.energy_mj is None else reading.energy_mj
    return replace(state, unread=0, ecc=ecc, energy_mj=energy_mj)


def _mark_slowed(state: HealthState, observed: GpuObservation, now: float, settings: HealthSettings) -> HealthState:
    """Marks a GPU degraded after it was slowed down for a while, until it has run at full speed for longer."""
    if observed.reading is None:
        return state
    cause = next((slow for slow in _SLOW if slow in observed.reading.clock_reasons), None)
    if cause:
        since = now if state.slow_since is None else state.slow_since
        is_slow = state.slowed or now - since >= settings.slow_seconds
        return replace(state, slow_since=since, clear_since=None, slowed=cause.value if is_slow else "")
    since = now if state.clear_since is None else state.clear_since
    is_clear = now - since >= settings.clear_seconds
    return replace(state, slow_since=None, clear_since=since, slowed="" if is_clear else state.slowed)


# The fence


def _fence(state: HealthState, fault: GpuFault, now: float, settings: HealthSettings) -> HealthState:
    """Begins or extends the fence; only a fault after it was lifted is a relapse."""
    if not state.cause:
        state = replace(state, relapses=state.relapses + 1)
    if not state.needs or fault.needs:  # a cause that needs a person stays until that is done
        state = replace(state, cause=fault.cause.value, xid=fault.xid, needs=fault.needs)
    return replace(state, ongoing=True, until=max(state.until, now + back_off(state, settings)))


def _lift_fence(state: HealthState, now: float, settings: HealthSettings) -> HealthState:
    """Lifts the fence once its time is over without a fault; good time reduces the relapses."""
    state = replace(state, ongoing=False)
    if state.cause:
        if state.needs or now < state.until:
            return state
        return replace(state, cause="", xid=0, good_since=now)
    if state.relapses and now - state.good_since >= settings.decay_seconds:
        return replace(state, relapses=state.relapses - 1, good_since=state.good_since + settings.decay_seconds)
    return state
