"""Watches what runs after its rollout: a copy that stays down falls, and starts elsewhere as if it had not started.

A service that falls wherever it is started is the likely cause itself and is not moved. If much goes down at once,
something shared is the cause: nothing moves for a while, and after that a part each minute.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from agents.contract.assignments import AssignedInstance
from agents.contract.fields import UP_STAGES
from app.control.domain.desired import Desired, FleetStatus
from app.control.domain.events import Reason
from app.control.domain.failures import PlaceFailure
from app.control.rollout.check import HARMLESS, StepFailure
from app.control.rollout.failing.many_down import DownCopy, DownFleet, find_silent, is_held, take_turns, watch_moves
from app.control.rollout.failing.starts import SeenStarts, read_seen_starts, start_limit
from app.control.rollout.failing.suspects import STEADY_SECONDS, age_failures, note_failures
from app.control.rollout.reporting import is_current, last_report
from app.control.rollout.rules import DownSpell, RolloutNotice, RolloutRules, RolloutState

MOST_TIMES = 3  # that a copy goes down before it falls at once


@dataclass(frozen=True, slots=True)
class FoundFalls:
    """The state with what is down, the copies that are to start elsewhere, and what is to be said."""

    state: RolloutState
    failures: tuple[StepFailure, ...] = ()
    notices: tuple[RolloutNotice, ...] = ()


def find_falls(
    assigned: Desired, observed: FleetStatus, state: RolloutState, rules: RolloutRules, now: float
) -> FoundFalls:
    """Finds the copies that have been down for too long, by their nodes' own reports."""
    looked = _look(assigned, observed, state, now)
    spells = dict(_spells(state.down, looked.down, assigned, observed, now))
    state = replace(state, down=spells, failures=age_failures(state.failures, looked.well, now))
    state, notices = watch_moves(state, looked.fleet, assigned, observed, rules, now)
    seen = read_seen_starts(state)
    due = [found for id_, found in sorted(looked.fleet.copies.items()) if _is_due(found, spells[id_], rules, seen)]
    state, fallen = take_turns(state, [found for found in due if found.instance.owner not in rules.by_hand], now)
    state, stays = _tell_by_hand(state, due, rules)
    messages = {found.instance.id: _describe(found, spells[found.instance.id]) for found in fallen}
    failed = [(PlaceFailure(found.instance.owner, found.place, now), messages[found.instance.id]) for found in fallen]
    state, suspected = note_failures(state, failed, now)
    moving = [found.instance for found in fallen if found.instance.owner not in state.suspects]
    failures = tuple(StepFailure(line.id, Reason.INSTANCE_DOWN, messages[line.id]) for line in moving)
    return FoundFalls(state, failures, (*notices, *stays, *suspected))


def _describe(found: DownCopy, spell: DownSpell) -> str:
    what = f"{found.instance.id} on {found.node}/{found.instance.gpu} has been down for {found.at - spell.since:.0f} s"
    times = f" and went down {spell.times} times" if spell.times > 1 else ""
    why = ": ".join(filter(None, (found.status.reason, found.status.message))) if found.status else ""
    return f"{what}{times}{f': {why}' if why else ''}"


def _tell_by_hand(
    state: RolloutState, due: Iterable[DownCopy], rules: RolloutRules
) -> tuple[RolloutState, tuple[RolloutNotice, ...]]:
    """Tells once of copies that stay where they are, as a person moves their services."""
    found = [
        each
        for each in due
        if each.instance.owner in rules.by_hand
        and not state.down[each.instance.id].is_told
        and not is_held(state, each.instance.tenant)
    ]
    told = {each.instance.id: replace(state.down[each.instance.id], is_told=True) for each in found}
    notices = tuple(
        RolloutNotice(
            Reason.INSTANCE_DOWN,
            f"{_describe(each, told[each.instance.id])}; it stays there, as {rules.by_hand[each.instance.owner]}",
            each.instance.owner,
        )
        for each in found
    )
    return replace(state, down={**state.down, **told}) if told else state, notices


@dataclass(frozen=True, slots=True)
class _Looked:
    """What is down although nothing is under way there, what of it could move, and the services that run well."""

    down: dict[str, DownCopy]
    fleet: DownFleet
    well: frozenset[str]


def _look(assigned: Desired, observed: FleetStatus, state: RolloutState, now: float) -> _Looked:
    # A step that began while a copy was down does not hide that it is; any other is followed by itself.
    busy = {*state.pending, *(canary.instance for canary in state.canaries.values())}
    fell = {id_ for id_, spell in state.down.items() if not spell.up_since}
    down: dict[str, DownCopy] = {}
    counts: Counter[str] = Counter()
    by_node: Counter[str] = Counter()
    running: set[str] = set()
    troubled = {line.owner for wanted in assigned.values() for line in wanted.instances if line.id in busy}
    for node, wanted in assigned.items():
        if node in observed.silent or node in observed.lost:
            continue
        at = last_report(node, observed, now)
        for instance in wanted.instances:
            # What jobs do, their queue follows; a failed GPU is left by a plan of its own.
            if not instance.service or (instance.id in busy and instance.id not in fell):
                continue
            if any((node, gpu) in observed.ailing for gpu in instance.all_gpus):
                continue
            if instance.owner not in state.suspects:
                counts[instance.owner] += 1
                by_node[node] += 1
            if not runs(instance, node, observed):
                down[instance.id] = DownCopy(instance, node, observed.instances.get(instance.id), at)
                troubled.add(instance.owner)
            else:
                running.add(instance.owner)
    silent = find_silent(observed, now)
    nodes = len({*assigned, *observed.reported_at} - observed.lost | set(silent))
    movable = {id_: found for id_, found in down.items() if found.instance.owner not in state.suspects}
    return _Looked(down, DownFleet(movable, counts, by_node, silent, nodes), frozenset(running - troubled))


def runs(instance: AssignedInstance, node: str, observed: FleetStatus) -> bool:
    """Returns whether it runs as its node has reported; a node that has yet to apply its assignment says nothing."""
    status = observed.instances.get(instance.id)
    # A copy that only waits for its gateway would wait elsewhere, too.
    return status.stage in UP_STAGES if status else not is_current(node, observed)


def _spells(
    before: Mapping[str, DownSpell], down: Mapping[str, DownCopy], assigned: Desired, observed: FleetStatus, now: float
) -> Iterator[tuple[str, DownSpell]]:
    """Yields the spells that go on: one ends when the copy has run steadily again."""
    for id_, found in down.items():
        known = before.get(id_)
        if known is None:
            yield id_, DownSpell(found.at)
        else:
            yield (
                id_,
                replace(known, since=found.at, times=known.times + 1, up_since=0.0, is_told=False)
                if known.up_since
                else known,
            )
    nodes = {
        line.id: node
        for node, wanted in (assigned.items() if before.keys() - down.keys() else ())
        for line in wanted.instances
    }
    for id_ in before.keys() - down.keys():
        known, node = before[id_], nodes.get(id_)
        if node is None or node in observed.silent:
            continue
        at = last_report(node, observed, now)
        if not known.up_since or at - known.up_since < STEADY_SECONDS:
            yield id_, known if known.up_since else replace(known, up_since=at)


def _is_due(found: DownCopy, spell: DownSpell, rules: RolloutRules, seen: SeenStarts) -> bool:
    """Returns whether the copy has been down for too long: one that rises again has the time of a start."""
    if spell.times >= MOST_TIMES:
        return True
    status = found.status
    rises = status is not None and (bool(status.rising) or status.reason in HARMLESS)
    limit = start_limit(found.instance, found.node, rules, seen) if rises else 0.0
    return found.at - spell.since >= max(rules.down_seconds, limit)
