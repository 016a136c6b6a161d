"""Finds what changed between two snapshots of the fleet: nodes, GPUs, drains, profiles and SLOs, each an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from app.control.decide.cordons import Drain
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.snapshot import Correction, LatencyFactor, NodeStatus, Snapshot
from app.control.formulate.reserved_watts import RESERVED_SHARE
from app.control.tell.slo import SloStatus
from app.store.fleet.cordons import ALL_GPUS

NODE_REASONS = {
    "silent": Reason.NODE_SILENT,
    "lost": Reason.NODE_LOST,
    "mismatch": Reason.NODE_MISMATCH,
}
WRONG_FACTOR = 1.45  # just inside the limit of corrections: a profile that is slower still is wrong
MOVED_FACTOR = 0.05  # of a correction: a smaller change is no event
SILENT_SECONDS = 30.0  # a gateway sends counts every second
NAMED_LINES = 5  # of those that cannot leave
ALARMS = {"fast": Reason.BURN_FAST, "slow": Reason.SLO_MISSED}


def find_fleet_events(before: Snapshot, now: Snapshot) -> list[NewEvent]:
    """Returns events of nodes, GPUs and profiles that have changed."""
    found: list[NewEvent] = []
    for name, facts in sorted(now.nodes.items()):
        found += _list_node_events(before.nodes.get(name), facts, _count_leaving(before, facts), now.at)
    for key, correction in sorted(now.corrections.items()):
        found += _list_profile_events(key, before.corrections.get(key, Correction()), correction)
    return found


def find_drain_events(before: Iterable[Drain], now: Iterable[Drain]) -> list[NewEvent]:
    """Returns drains that are done, and those whose deadline has passed while something is left."""
    last = {(drain.cordon.node, drain.cordon.gpu, drain.cordon.mode): drain for drain in before}
    found = []
    for drain in now:
        known = last.get((drain.cordon.node, drain.cordon.gpu, drain.cordon.mode))
        about = "" if drain.cordon.gpu == ALL_GPUS else str(drain.cordon.gpu)
        if drain.is_done and not (known and known.is_done):
            found.append(event_of(Reason.DRAIN_DONE, kind="Node", name=drain.cordon.node, about=about))
        elif drain.is_late and not (known and known.is_late):
            more = " and more" if len(drain.remaining) > NAMED_LINES else ""
            message = f"{', '.join(drain.remaining[:NAMED_LINES])}{more} cannot leave"
            if drain.is_under_way and not drain.remaining:
                message = "the deadline has passed while the rollout that empties it is still running"
            found.append(event_of(Reason.DRAIN_STUCK, message, kind="Node", name=drain.cordon.node, about=about))
    return found


def find_burn_events(before: Mapping[str, SloStatus], now: Mapping[str, SloStatus]) -> list[NewEvent]:
    """Returns services that have begun to burn their allowance of late requests too fast."""
    return [
        event_of(ALARMS[status.alarm], kind="Service", name=name)
        for name, status in sorted(now.items())
        if status.alarm in ALARMS and status.alarm != before.get(name, SloStatus()).alarm
    ]


def find_gateway_events(before: Mapping[str, float], now: Mapping[str, float]) -> list[NewEvent]:
    """Returns gateways that fell silent or are back; both maps hold the seconds of silence."""
    found = []
    for name, seconds in sorted(now.items()):
        was = before.get(name, 0.0) > SILENT_SECONDS
        if (seconds > SILENT_SECONDS) is not was:
            found.append(event_of(Reason.GATEWAY_BACK if was else Reason.GATEWAY_SILENT, kind="Gateway", name=name))
    return found


def _list_node_events(before: NodeStatus | None, now: NodeStatus, runs: int, at: datetime) -> Iterator[NewEvent]:
    was = before.state if before else "never"
    if was != now.state:
        if now.was_reclaimed(at):
            yield event_of(Reason.NODE_RECLAIMED, kind="Node", name=now.name)
        elif now.state in NODE_REASONS:
            yield event_of(NODE_REASONS[now.state], kind="Node", name=now.name)
        elif now.state == "reporting":
            yield event_of(Reason.NODE_JOINED if was == "never" else Reason.NODE_BACK, kind="Node", name=now.name)
    if before is None:
        return
    for gpu in sorted(set(now.failed_gpus) - set(before.failed_gpus)):
        yield event_of(Reason.GPU_FAILED, f"GPU {gpu} is failed or fenced", kind="Node", name=now.name, about=str(gpu))
    for gpu in sorted(set(before.failed_gpus) - set(now.failed_gpus)):
        yield event_of(Reason.GPU_BACK, f"GPU {gpu} works again", kind="Node", name=now.name, about=str(gpu))
    was_due, is_due = dict(before.partition_requests), dict(now.partition_requests)
    for gpu, answers in is_due.items():
        if answers > was_due.get(gpu, 0):
            reserved = 1 - (1 - RESERVED_SHARE) ** answers
            message = f"the node asks for another partition of GPU {gpu}: until an hour after its last request, plans"
            message += f" leave {reserved:.0%} of the watts above idle unused there, unless load would be unserved"
            yield event_of(Reason.WATTS_RESERVED, message, kind="Node", name=now.name, about=str(gpu))
    for gpu in sorted(was_due.keys() - is_due.keys()):
        yield event_of(Reason.WATTS_RELEASED, f"GPU {gpu}", kind="Node", name=now.name, about=str(gpu))
    if now.draining_gpus and not before.draining_gpus:
        yield event_of(Reason.DRAIN_STARTED, f"{runs} instances and jobs have to leave", kind="Node", name=now.name)


def _count_leaving(before: Snapshot, now: NodeStatus) -> int:
    """Counts what ran there before: the plan announced now may have moved it already."""
    wanted = before.in_force.get(now.name)
    draining = set(now.draining_gpus)
    lines = (*wanted.instances, *wanted.swapped) if wanted else ()
    return sum(not draining.isdisjoint(line.all_gpus) for line in lines)


def _find_worst(correction: Correction) -> LatencyFactor:
    """Returns the place that is far too slow, or else the farthest: a draft may be far too careful elsewhere."""
    slowest = max(correction.latency, key=lambda place: place.factor, default=correction.farthest)
    return slowest if slowest.factor > WRONG_FACTOR else correction.farthest


def _list_profile_events(key: str, before: Correction, now: Correction) -> Iterator[NewEvent]:
    point, was = _find_worst(now), _find_worst(before).factor
    factor = point.factor
    is_wrong, was_wrong = (value > WRONG_FACTOR for value in (factor, was))
    message = f"{key}: execution takes {factor:.2f} times as long as the profile says"
    if point.batch:
        message += f" at batch {point.batch} with {point.sm_percent:g} % of the SMs"
    if is_wrong and not was_wrong:
        yield event_of(Reason.PROFILE_WRONG, message, kind="Profile", name=key.replace("/", "-"))
    elif abs(factor - was) >= MOVED_FACTOR:
        yield event_of(Reason.PROFILE_CORRECTED, message, kind="Profile", name=key.replace("/", "-"))
