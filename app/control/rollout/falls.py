"""Watches what runs after its rollout: a copy that stays down falls, and starts elsewhere as if it had not started.

A service that falls wherever it is started is the likely cause itself and is not moved. If much goes down at once,
something shared is the cause: nothing moves for a while, and after that one copy after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.domain.events import Reason
from app.control.domain.failures import PlaceFailure
from app.control.rollout.check import HARMLESS, StepFailure, start_limit
from app.control.rollout.reporting import is_current, last_report
from app.control.rollout.rules import DownSpell, RolloutNotice, RolloutRules, RolloutState
from app.control.rollout.suspects import STEADY_SECONDS, age_failures, note_failures

RUNNING_STAGES = ("routing", "ready")  # a copy that only waits for its gateway would wait elsewhere, too
MOST_TIMES = 3  # that a copy goes down before it falls at once
MANY_SECONDS = 60.0  # within which copies that go down are likely to have one cause
MANY_SHARE, FEWEST_MANY = 1 / 3, 3
HELD_SECONDS = 600.0  # for which nothing moves
BY_HAND = "; it stays there, as its mode is not auto"
PAUSE_SECONDS = 60.0  # between two moves after that


@dataclass(frozen=True, slots=True)
class _Down:
    """An instance that does not run."""

    instance: AssignedInstance
    node: str
    status: InstanceStatus | None
    at: float  # when its node reported

    @property
    def place(self) -> tuple[str, int]:
        return self.node, self.instance.gpu

    def describe(self, spell: DownSpell) -> str:
        what = f"{self.instance.id} on {self.node}/{self.instance.gpu} has been down for {self.at - spell.since:.0f} s"
        times = f" and went down {spell.times} times" if spell.times > 1 else ""
        why = ": ".join(filter(None, (self.status.reason, self.status.message))) if self.status else ""
        return f"{what}{times}{f': {why}' if why else ''}"


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
    down = looked.down
    spells = dict(_spells(state.down, down, assigned, observed, now))
    state = replace(state, down=spells, failures=age_failures(state.failures, looked.well, now))
    movable = {id_: found for id_, found in sorted(down.items()) if found.instance.owner not in state.suspects}
    state, notices = _detect_many_down(state, movable, looked.count, rules, now)
    due = [found for id_, found in movable.items() if _is_due(found, spells[id_], rules)]
    fallen = [found for found in due if found.instance.owner not in rules.by_hand]
    stays: tuple[RolloutNotice, ...] = ()
    if state.many_down_since:
        fallen = _pick_next(fallen, state, now)
    else:
        state, stays = _tell_by_hand(state, due, rules)
    messages = {found.instance.id: found.describe(spells[found.instance.id]) for found in fallen}
    failed = [(PlaceFailure(found.instance.owner, found.place, now), messages[found.instance.id]) for found in fallen]
    state, suspected = note_failures(state, failed, now)
    moving = [found.instance for found in fallen if found.instance.owner not in state.suspects]
    failures = tuple(StepFailure(line.id, Reason.INSTANCE_DOWN, messages[line.id]) for line in moving)
    return FoundFalls(state, failures, (*notices, *stays, *suspected))


def _tell_by_hand(
    state: RolloutState, due: Iterable[_Down], rules: RolloutRules
) -> tuple[RolloutState, tuple[RolloutNotice, ...]]:
    """Tells once of copies that stay where they are, as a person moves their services."""
    found = [each for each in due if each.instance.owner in rules.by_hand and not state.down[each.instance.id].is_told]
    told = {each.instance.id: replace(state.down[each.instance.id], is_told=True) for each in found}
    notices = tuple(
        RolloutNotice(Reason.INSTANCE_DOWN, each.describe(told[each.instance.id]) + BY_HAND, each.instance.owner)
        for each in found
    )
    return replace(state, down={**state.down, **told}) if told else state, notices


@dataclass(frozen=True, slots=True)
class _Looked:
    """What is down although nothing is under way there, of how many copies, and the services that run well."""

    down: dict[str, _Down]
    count: int
    well: frozenset[str]


def _look(assigned: Desired, observed: FleetStatus, state: RolloutState, now: float) -> _Looked:
    # A step that began while a copy was down does not hide that it is; any other is followed by itself.
    busy = {*state.pending, *(canary.instance for canary in state.canaries.values())}
    fell = {id_ for id_, spell in state.down.items() if not spell.up_since}
    down: dict[str, _Down] = {}
    count = 0
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
            count += 1
            if not runs(instance, node, observed):
                down[instance.id] = _Down(instance, node, observed.instances.get(instance.id), at)
                troubled.add(instance.owner)
            else:
                running.add(instance.owner)
    return _Looked(down, count, frozenset(running - troubled))


def runs(instance: AssignedInstance, node: str, observed: FleetStatus) -> bool:
    """Returns whether it runs as its node has reported; a node that has yet to apply its assignment says nothing."""
    status = observed.instances.get(instance.id)
    return status.stage in RUNNING_STAGES if status else not is_current(node, observed)


def _spells(
    before: Mapping[str, DownSpell], down: Mapping[str, _Down], assigned: Desired, observed: FleetStatus, now: float
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


def _is_due(found: _Down, spell: DownSpell, rules: RolloutRules) -> bool:
    """Returns whether the copy has been down for too long: one that rises again has the time of a start."""
    if spell.times >= MOST_TIMES:
        return True
    status = found.status
    rises = status is not None and (bool(status.rising) or status.reason in HARMLESS)
    limit = start_limit(found.instance, found.node, rules) if rises else 0.0
    return found.at - spell.since >= max(rules.down_seconds, limit)


def _detect_many_down(
    state: RolloutState, down: Mapping[str, _Down], count: int, rules: RolloutRules, now: float
) -> tuple[RolloutState, tuple[RolloutNotice, ...]]:
    """Notes when so much goes down within a minute that something shared is the cause, and when that is over."""
    if state.many_down_since:
        is_over = len(down) < max(FEWEST_MANY, MANY_SHARE * count)
        return (replace(state, many_down_since=0.0) if is_over else state), ()
    begun = now - MANY_SECONDS - rules.down_seconds
    lately = [found for id_, found in down.items() if state.down[id_].since > begun]
    is_of_one_node = len({found.node for found in lately}) < 2  # that node is the cause, and others may do better
    if is_of_one_node or len(lately) < FEWEST_MANY or len(lately) <= MANY_SHARE * count:
        return state, ()
    message = (
        f"{len(lately)} of {count} copies went down within a minute, and nothing moves; {_describe_shared(lately)}"
    )
    return replace(state, many_down_since=now), (RolloutNotice(Reason.MANY_DOWN, message),)


def _describe_shared(down: Sequence[_Down]) -> str:
    """Names what all of them share."""
    names = {
        "service": {found.instance.owner for found in down},
        "model": {found.instance.model for found in down},
        "template": {found.instance.template for found in down},
        "reason": {found.status.reason if found.status else "" for found in down},
    }
    shared = [f"{what} {value}" for what, values in names.items() if len(values) == 1 for value in values if value]
    return f"all of them share {', '.join(shared)}" if shared else "they share nothing but the time"


def _pick_next(due: Sequence[_Down], state: RolloutState, now: float) -> list[_Down]:
    """Returns the copy that may move although much is down: none for a while, then one at a time."""
    last = max((failure.at for failure in state.failures if failure.place), default=0.0)
    waits = now - state.many_down_since < HELD_SECONDS or now - last < PAUSE_SECONDS
    return [] if waits else list(due[:1])
