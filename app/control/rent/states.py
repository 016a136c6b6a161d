"""The life of a rented node, from its order until nothing of it is paid. Pure: a hook may fail, be late or lie.

What a hook says is never proof. A node has joined when it reports, and is gone when its hook says so and it is silent
for some minutes, while others report.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, NamedTuple, TypeAlias

from app.control.domain.events import Reason

HookVerb: TypeAlias = Literal["rent", "return"]
AnswerState: TypeAlias = Literal["accepted", "refused", "returned", "pending", "tried", "failed"]

RETRY = timedelta(seconds=30)  # until a hook that failed is called again, under the same key
REST = timedelta(minutes=10)  # of a pool after a refusal: others are asked meanwhile
ASKING = timedelta(minutes=10)  # a hook that fails for longer may have rented all the same: the node is given back
STAYING = timedelta(minutes=5)  # after a return: a node that is silent is gone, for one that reports its hook is called
LATE_STARTS = 3.0  # times its start until a node is late, and again until it is given back
LEAST_LATE = timedelta(minutes=5)
UNSEEN = "it may be paid for"


class RentState(StrEnum):
    """The state of a rented node. Refused and gone are ends; a node that reports all the same leaves them."""

    ASKED = "asked"
    STARTING = "starting"
    LATE = "late"
    JOINED = "joined"
    LEAVING = "leaving"
    REFUSED = "refused"
    GONE = "gone"


ENDED = (RentState.REFUSED, RentState.GONE)
COMING = (RentState.ASKED, RentState.STARTING)  # one that is late may never come: another may be ordered


@dataclass(frozen=True, slots=True)
class RentedNode:
    """An order of one node and what has become of it."""

    key: str  # under which hooks are called; a second call with it must rent nothing more
    node: str
    pool: str
    hook: str
    state: RentState
    asked_at: datetime
    since: datetime  # of the state
    start_seconds: float
    minimum_seconds: float
    paid_at: datetime | None = None  # since when it may be paid for
    joined_at: datetime | None = None
    called_at: datetime | None = None  # the hook, last
    returned: bool = False  # its hook says so
    ended_at: datetime | None = None
    idle_seconds: float = 0.0  # in all
    message: str = ""

    @property
    def late_after(self) -> timedelta:
        return max(timedelta(seconds=LATE_STARTS * self.start_seconds), LEAST_LATE)

    @property
    def counts(self) -> bool:
        """Whether its node is, or may be, paid for: until its hook says that it is given back."""
        return self.state not in ENDED and not self.returned

    @property
    def term(self) -> timedelta:
        """For how long it is paid for at least."""
        return timedelta(seconds=self.start_seconds + self.minimum_seconds)

    def is_over(self, now: datetime) -> bool:
        """Returns whether its hook has said for some time that it is given back."""
        return self.returned and self.called_at is not None and now - self.called_at > STAYING

    def note_call(self, now: datetime) -> RentedNode:
        """Returns the node as it is recorded before its hook is called: from then on it may be paid for."""
        return replace(self, called_at=now, paid_at=self.paid_at or now)

    def enter(self, state: RentState, now: datetime, message: str = "") -> RentedNode:
        ended = now if state in ENDED else None
        return replace(self, state=state, since=now, message=message, ended_at=ended)


class NodeSight(NamedTuple):
    """What is seen of the node now, whatever its hook says."""

    reports: bool = False
    is_unknown: bool = False  # its silence proves nothing: no node reports, or has done so for a moment only
    occupied: bool = False  # something is assigned to it or runs there
    reclaimed: bool = False  # it is silent after the time at which its cloud has said to take it back


class HookAnswer(NamedTuple):
    """What a hook answered; `pending` that it is at work, `failed` is no answer at all, so that nothing is known."""

    state: AnswerState
    message: str = ""


class RentStep(NamedTuple):
    """The node after a look or an answer, and the reason of an event if there is one."""

    rented: RentedNode
    reason: Reason | None = None


def look(rented: RentedNode, sight: NodeSight, now: datetime) -> RentStep:
    """Returns the node as what is seen of it makes it."""
    waited = now - rented.since
    match rented.state:
        case RentState.ASKED | RentState.STARTING | RentState.LATE if sight.reports:
            paid = replace(rented, paid_at=rented.paid_at or now, joined_at=rented.joined_at or now)
            return RentStep(paid.enter(RentState.JOINED, now), Reason.RENT_JOINED)
        case RentState.ASKED if now - rented.asked_at > ASKING and rented.called_at is None:
            return RentStep(cancel(rented, now, "its hook was not called in time"), Reason.RENT_CANCELLED)
        case RentState.ASKED if now - rented.asked_at > ASKING:
            why = f"its hook has not answered, so it is given back unseen: {rented.message}"
            return RentStep(leave(rented, now, why), Reason.RENT_LATE)
        case RentState.STARTING if waited > rented.late_after and not sight.is_unknown:
            why = f"its hook says that it starts, and it has not reported for {waited.total_seconds() / 60:.0f} minutes"
            return RentStep(rented.enter(RentState.LATE, now, why), Reason.RENT_LATE)
        case RentState.JOINED if sight.reclaimed:
            return RentStep(leave(rented, now, "its cloud has taken it back"), Reason.RENT_LEAVING)
        case RentState.LATE if waited > rented.late_after and not sight.is_unknown:
            return RentStep(leave(rented, now, "it never reported, so it is given back"), Reason.RENT_LATE)
        case RentState.LEAVING if not rented.is_over(now) or sight.is_unknown:
            return RentStep(rented)
        case RentState.LEAVING if not sight.reports:  # it was paid for until its hook said that it is gone
            return RentStep(replace(rented.enter(RentState.GONE, now), ended_at=rented.called_at), Reason.RENT_RETURNED)
        case RentState.LEAVING:
            why = f"its hook says that it is gone, and it still reports: {UNSEEN}"
            return RentStep(replace(rented, returned=False, message=why), Reason.RENT_STAYS)
        case RentState.REFUSED | RentState.GONE if sight.reports:
            why = f"it was {rented.state}, and it reports: {UNSEEN}"
            paid = replace(rented, paid_at=rented.paid_at or now)
            return RentStep(leave(paid, now, why), Reason.RENT_STAYS)
        case _:
            return RentStep(rented)


def leave(rented: RentedNode, now: datetime, message: str = "") -> RentedNode:
    """Returns the node as one that is emptied and then given back."""
    return replace(rented.enter(RentState.LEAVING, now, message), called_at=None, returned=False)


def cancel(rented: RentedNode, now: datetime, why: str) -> RentedNode:
    """Returns an order that is wanted no longer: one for which its hook was called may be paid for, and leaves."""
    if rented.called_at is not None:
        return leave(rented, now, why)
    return rented.enter(RentState.REFUSED, now, why)


def next_call(rented: RentedNode, sight: NodeSight, now: datetime) -> HookVerb | None:
    """Returns what its hook is called for now; nothing leaves before it is empty."""
    is_due = rented.called_at is None or now - rented.called_at >= RETRY
    if rented.state is RentState.ASKED and is_due:
        return "rent"
    if rented.state is RentState.LEAVING and not rented.returned and not sight.occupied and is_due:
        return "return"
    return None


def take_answer(rented: RentedNode, verb: HookVerb, answer: HookAnswer, now: datetime) -> RentStep:
    """Returns the node after its hook's answer. An answer that does not fit the call counts as none."""
    if rented.state is RentState.ASKED and verb == "rent":
        match answer.state:
            case "accepted":
                paid = replace(rented, paid_at=rented.called_at or now)  # its term begins with the call that it accepts
                return RentStep(paid.enter(RentState.STARTING, now, answer.message), Reason.RENT_ORDERED)
            case "refused" | "tried":
                ended = replace(rented.enter(RentState.REFUSED, now, answer.message), paid_at=None)
                return RentStep(ended, Reason.RENT_REFUSED if answer.state == "refused" else Reason.RENT_TRIED)
    # That it may be paid for all the same is not forgotten because its hook says something else once more.
    message = rented.message if UNSEEN in rented.message else answer.message or rented.message
    if rented.state is RentState.LEAVING and verb == "return" and answer.state == "returned":
        return RentStep(replace(rented, returned=True, called_at=now, message=message))
    if answer.state == "pending":
        return RentStep(replace(rented, message=message))
    why = answer.message or f"its hook answered {answer.state!r} when asked to {verb}"
    return RentStep(replace(rented, message=why), Reason.RENT_HOOK_FAILED)
