"""Says how a GPU is, why, and what to do, in words for the report and for the doctor."""

from __future__ import annotations

from agents.policy.health.seen import Cause, State, Verdict
from agents.policy.health.xids import meaning

_WORDS = {
    Cause.LOST: "it is not there any more",
    Cause.UNREADABLE: "it cannot be read",
    Cause.ECC: "uncorrectable memory errors",
    Cause.MPS_FAULT: "its MPS server is in FAULT",
    Cause.MPS_DOWN: "its MPS daemon does not answer",
    Cause.HOT: "it is too hot",
    Cause.POWER_BRAKE: "the machine's power brake slows it down",
    Cause.HW_THERMAL: "its heat protection slows it down",
    Cause.HW_SLOWDOWN: "its hardware slows it down",
    Cause.SW_THERMAL: "the driver slows it down for its heat",
}


def verdict(state: State, now: float) -> Verdict:
    """How the GPU is by all that was seen of it."""
    if state.cause:
        return _fenced(state, max(now, state.at))
    if state.slowed:
        return Verdict("degraded", state.slowed, message=_WORDS[Cause(state.slowed)])
    if state.noted:
        xid = meaning(state.noted)
        return Verdict("degraded", f"xid_{xid.code}", message=f"XID {xid.code}, {xid.what}: {xid.do}")
    return Verdict("ok")


def _fenced(state: State, now: float) -> Verdict:
    """Failed while the fault is there or needs a person; degraded while it only has to prove itself."""
    cause, advice = Cause(state.cause), ""
    if cause is Cause.XID:
        xid = meaning(state.xid)
        reason, what, advice = f"xid_{xid.code}", f"XID {xid.code}, {xid.what}", xid.do
    else:
        reason, what = cause.value, _WORDS[cause]
    if state.needs:
        then = f"{advice}; nothing is started on it until then"
    elif state.ongoing:
        then = "nothing is started on it while that lasts"
    else:
        left = max(0.0, state.until - now)
        then = f"that is over; nothing is started on it for another {left:.0f} s"
    hurts = (state.ongoing and cause is not Cause.HOT) or bool(state.needs)
    return Verdict("failed" if hurts else "degraded", reason, True, f"{what}: {then}", state.needs)
