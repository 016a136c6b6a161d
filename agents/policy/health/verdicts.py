"""Words a GPU's health, its cause and what to do, for the report and the doctor."""

from __future__ import annotations

from agents.policy.health.states import HealthCause, HealthState, HealthVerdict
from agents.policy.health.xids import meaning

_WORDS = {
    HealthCause.LOST: "it is no longer present",
    HealthCause.UNREADABLE: "it cannot be read",
    HealthCause.ECC: "uncorrectable memory errors",
    HealthCause.MPS_FAULT: "its MPS server is in FAULT",
    HealthCause.MPS_DOWN: "its MPS daemon does not answer",
    HealthCause.HOT: "it is too hot",
    HealthCause.POWER_BRAKE: "the machine's power brake slows it down",
    HealthCause.HW_THERMAL: "its hardware slows it down because of heat",
    HealthCause.HW_SLOWDOWN: "its hardware slows it down",
    HealthCause.SW_THERMAL: "the driver slows it down because of heat",
}


def verdict(state: HealthState, now: float) -> HealthVerdict:
    """Returns the verdict on a GPU."""
    if state.cause:
        return _judge_fenced(state, max(now, state.at))
    if state.slowed:
        return HealthVerdict("degraded", state.slowed, message=_WORDS[HealthCause(state.slowed)])
    if state.noted:
        xid = meaning(state.noted)
        return HealthVerdict("degraded", f"xid_{xid.code}", message=f"XID {xid.code}, {xid.what}: {xid.do}")
    return HealthVerdict("ok")


def _judge_fenced(state: HealthState, now: float) -> HealthVerdict:
    """Returns failed while the fault lasts or needs a person; degraded during the back-off after it."""
    cause, advice = HealthCause(state.cause), ""
    if cause is HealthCause.XID:
        xid = meaning(state.xid)
        reason, what, advice = f"xid_{xid.code}", f"XID {xid.code}, {xid.what}", xid.do
    else:
        reason, what = cause.value, _WORDS[cause]
    if state.needs:
        then = f"{advice}; nothing starts on it until then"
    elif state.ongoing:
        then = "nothing starts on it while this lasts"
    else:
        remaining_seconds = max(0.0, state.until - now)
        then = f"this is over; nothing starts on it for another {remaining_seconds:.0f} s"
    hurts = (state.ongoing and cause is not HealthCause.HOT) or bool(state.needs)
    return HealthVerdict("failed" if hurts else "degraded", reason, True, f"{what}: {then}", state.needs)
