"""What turned between two looks at the fleet: nodes, GPUs, drains, profiles and promises, each an event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from app.control.decide.cordons import Drain
from app.control.domain.events import NewEvent, Reason, event_of
from app.control.domain.snapshot import Correction, NodeStatus, Snapshot
from app.control.tell.slo import SloStatus
from app.store.fleet.cordons import WHOLE

NODE_TURNS = {
    "silent": Reason.NODE_SILENT,
    "lost": Reason.NODE_LOST,
    "mismatch": Reason.NODE_MISMATCH,
}
WRONG = (0.72, 1.45)  # as far as a correction goes, but for a little: a profile beyond it is wrong
MOVED = 0.05  # of a correction: less is no event
SILENT_SECONDS = 30.0  # a gateway says every second what it counts
NAMED = 5  # of what cannot leave
ALARMS = {"fast": Reason.BURN_FAST, "slow": Reason.SLO_MISSED}


def find_fleet_events(before: Snapshot, now: Snapshot) -> list[NewEvent]:
    """Nodes, GPUs, drains and profiles that are otherwise than at the last look."""
    found: list[NewEvent] = []
    for name, facts in sorted(now.nodes.items()):
        found += _of_node(before.nodes.get(name), facts, _leave(before, facts))
    for key, correction in sorted(now.corrections.items()):
        found += _of_profile(key, before.corrections.get(key, Correction()), correction)
    return found


def find_drain_events(before: Iterable[Drain], now: Iterable[Drain]) -> list[NewEvent]:
    """Drains that are through, and those whose deadline passed with something left."""
    was = {(one.asked.node, one.asked.gpu): one for one in before}
    found = []
    for one in now:
        known = was.get((one.asked.node, one.asked.gpu))
        about = "" if one.asked.gpu == WHOLE else str(one.asked.gpu)
        if one.is_done and not (known and known.is_done):
            found.append(event_of(Reason.DRAIN_DONE, kind="Node", name=one.asked.node, about=about))
        elif one.is_late and not (known and known.is_late):
            told = f"{', '.join(one.left[:NAMED])}{' and more' if len(one.left) > NAMED else ''} cannot leave"
            if one.is_under_way and not one.left:
                told = "its deadline has passed, and the rollout that empties it is still under way"
            found.append(event_of(Reason.DRAIN_STUCK, told, kind="Node", name=one.asked.node, about=about))
    return found


def find_burn_events(before: Mapping[str, SloStatus], now: Mapping[str, SloStatus]) -> list[NewEvent]:
    """Services that began to spend what may be missed too fast."""
    return [
        event_of(ALARMS[kept.alarm], kind="Service", name=name)
        for name, kept in sorted(now.items())
        if kept.alarm in ALARMS and kept.alarm != before.get(name, SloStatus()).alarm
    ]


def find_gateway_events(before: Mapping[str, float], now: Mapping[str, float]) -> list[NewEvent]:
    """Gateways that fell silent, or are heard again; by how many seconds each has been silent."""
    found = []
    for name, seconds in sorted(now.items()):
        was = before.get(name, 0.0) > SILENT_SECONDS
        if (seconds > SILENT_SECONDS) is not was:
            found.append(event_of(Reason.GATEWAY_BACK if was else Reason.GATEWAY_SILENT, kind="Gateway", name=name))
    return found


def _of_node(before: NodeStatus | None, now: NodeStatus, runs: int) -> Iterator[NewEvent]:
    was = before.state if before else "never"
    if was != now.state:
        if now.state in NODE_TURNS:
            yield event_of(NODE_TURNS[now.state], kind="Node", name=now.name)
        elif now.state == "reporting":
            yield event_of(Reason.NODE_JOINED if was == "never" else Reason.NODE_BACK, kind="Node", name=now.name)
    if before is None:
        return
    for gpu in sorted(set(now.failed_gpus) - set(before.failed_gpus)):
        yield event_of(Reason.GPU_FAILED, f"GPU {gpu} is failed or fenced", kind="Node", name=now.name, about=str(gpu))
    for gpu in sorted(set(before.failed_gpus) - set(now.failed_gpus)):
        yield event_of(Reason.GPU_BACK, f"GPU {gpu} is well again", kind="Node", name=now.name, about=str(gpu))
    if now.draining_gpus and not before.draining_gpus:
        yield event_of(Reason.DRAIN_STARTED, f"{runs} instances and jobs are to leave", kind="Node", name=now.name)


def _leave(before: Snapshot, now: NodeStatus) -> int:
    """What stood there: the plan that is told of now may have moved it already."""
    wanted = before.standing.get(now.name)
    return sum(one.gpu in now.draining_gpus for one in wanted.instances) if wanted else 0


def _of_profile(key: str, before: Correction, now: Correction) -> Iterator[NewEvent]:
    factor, was = now.latency_factor, before.latency_factor
    is_wrong, was_wrong = (not WRONG[0] <= one <= WRONG[1] for one in (factor, was))
    told = f"{key}: measured execution time is {factor:.2f} of the profile's"
    if is_wrong and not was_wrong:
        yield event_of(Reason.PROFILE_WRONG, told, kind="Profile", name=key.replace("/", "-"))
    elif abs(factor - was) >= MOVED:
        yield event_of(Reason.PROFILE_CORRECTED, told, kind="Profile", name=key.replace("/", "-"))
