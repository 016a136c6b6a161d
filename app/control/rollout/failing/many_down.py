"""Holds moves while so much is down at once that something shared is the likely cause; then a part moves each minute.

What a single tenant or a single service has is no sign of a shared cause for the others: a tenant's own trouble holds
its own moves alone, and a service that falls wherever it is started is the cause itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from posixpath import dirname
from typing import TypeVar

from agents.contract.assignments import AssignedInstance
from app.control.domain.desired import Desired, FleetStatus, InstanceStatus
from app.control.domain.events import Reason
from app.control.domain.snapshot import SILENT_SECONDS
from app.control.rollout.rules import HeldMoves, RolloutNotice, RolloutRules, RolloutState

MANY_SECONDS = 60.0  # within which what goes down is likely to have one cause
MANY_SHARE, FEWEST_MANY = 1 / 3, 3
FEWEST_OTHERS = 2  # beside the tenant or service that has most of what is down
HELD_SECONDS = 600.0  # for which nothing moves
PAUSE_SECONDS = 60.0  # between two moves after that
TURNS = 10  # in which all of it moves
NAMED_NODES = 5
ALL = ""  # in place of a tenant: of all of them

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class DownCopy:
    """An instance that does not run."""

    instance: AssignedInstance
    node: str
    status: InstanceStatus | None
    at: float  # when its node reported

    @property
    def place(self) -> tuple[str, int]:
        return self.node, self.instance.gpu


@dataclass(frozen=True, slots=True)
class DownFleet:
    """What could move and is down, beside how much there is."""

    copies: Mapping[str, DownCopy]  # by instance
    counts: Mapping[str, int]  # of all copies, by service
    by_node: Mapping[str, int]  # of all copies, by node that is heard
    silent: tuple[str, ...]  # nodes that went silent within a minute, and that no cloud took back
    nodes: int  # of all

    def narrow(self, tenant: str) -> tuple[dict[str, DownCopy], dict[str, int]]:
        """Returns what is down of a tenant, and the number of its copies by service."""
        copies = {id_: copy for id_, copy in self.copies.items() if tenant in (ALL, copy.instance.tenant)}
        counts = {name: count for name, count in self.counts.items() if tenant in (ALL, _tenant_of(name))}
        return copies, counts


def find_silent(observed: FleetStatus, now: float) -> tuple[str, ...]:
    """Returns the nodes that went silent within a minute, as far as silence is not the control plane's own."""
    found = (observed.silent | observed.lost) & observed.reported_at.keys() - observed.reclaimed_at.keys()
    seconds = {node: now - max(observed.reported_at[node], observed.heard_since) for node in found}
    fell = {node for node in found if seconds[node] > SILENT_SECONDS or node in observed.lost}
    return tuple(sorted(node for node in fell if seconds[node] <= SILENT_SECONDS + MANY_SECONDS))


def watch_moves(
    state: RolloutState, fleet: DownFleet, assigned: Desired, observed: FleetStatus, rules: RolloutRules, now: float
) -> tuple[RolloutState, tuple[RolloutNotice, ...]]:
    """Begins to hold moves, says so once, and ends it."""
    nodes = {node for node in state.held_nodes if node in observed.silent}
    if ALL in state.held and now - state.held[ALL].since < HELD_SECONDS:
        nodes |= set(fleet.silent)  # these follow the first
    held = {tenant: moves for tenant, moves in state.held.items() if not _is_over(tenant, fleet, bool(nodes))}
    lately = {
        id_: copy
        for id_, copy in fleet.copies.items()
        if state.down[id_].since > now - MANY_SECONDS - rules.down_seconds
    }
    found: dict[str, str] = {}
    for tenant in () if ALL in held else (ALL, *sorted({copy.instance.tenant for copy in lately.values()})):
        message = _find_many(tenant, replace(fleet, copies=lately), rules)
        if message and ALL not in found and tenant not in held:
            found[tenant] = message
    if ALL in found:
        held, nodes = {}, set(fleet.silent)
    held |= {tenant: HeldMoves(now) for tenant in found}
    notices = tuple(RolloutNotice(Reason.MANY_DOWN, message, tenant=tenant) for tenant, message in found.items())
    return replace(state, held=held, held_nodes=_order_nodes(nodes, assigned)), notices


def take_turns(state: RolloutState, due: Collection[DownCopy], now: float) -> tuple[RolloutState, list[DownCopy]]:
    """Returns the copies that may move now: of what is held a part at each turn, the most important first."""
    first = sorted(due, key=lambda copy: (-copy.instance.priority, copy.instance.id))
    moving = [copy for copy in first if ALL not in state.held and copy.instance.tenant not in state.held]
    nodes = state.held_nodes
    held = dict(state.held)
    for tenant, moves in state.held.items():
        if now - moves.since < HELD_SECONDS or now - moves.moved_at < PAUSE_SECONDS:
            continue
        left = max(1, TURNS - moves.turns)
        moving += _part([copy for copy in first if tenant in (ALL, copy.instance.tenant)], left)
        if tenant == ALL:
            nodes = nodes[len(_part(nodes, left)) :]
        held[tenant] = replace(moves, turns=moves.turns + 1, moved_at=now)
    return replace(state, held=held, held_nodes=nodes), moving


def is_held(state: RolloutState, tenant: str) -> bool:
    """Returns whether what is down of this tenant waits."""
    return ALL in state.held or tenant in state.held


def _part(items: Sequence[T], turns: int) -> Sequence[T]:
    return items[: ceil(len(items) / turns)]


def _tenant_of(owner: str) -> str:
    return owner.split("/", 1)[0]


def _is_over(tenant: str, fleet: DownFleet, has_nodes: bool) -> bool:
    copies, counts = fleet.narrow(tenant)
    is_few = len(copies) < max(FEWEST_MANY, MANY_SHARE * sum(counts.values()))
    return is_few and not (tenant == ALL and has_nodes)


def _order_nodes(nodes: Collection[str], assigned: Desired) -> tuple[str, ...]:
    """Returns the nodes with the most important copies first."""
    most = {
        node: max((line.priority for line in assigned[node].instances), default=0.0) if node in assigned else 0.0
        for node in nodes
    }
    return tuple(sorted(nodes, key=lambda node: (-most[node], node)))


def _find_many(tenant: str, lately: DownFleet, rules: RolloutRules) -> str:
    """Describes what has gone down of a tenant or of all; empty if it is not much, or has an own cause."""
    copies, counts = lately.narrow(tenant)
    part: Callable[[str], str] = _tenant_of if tenant == ALL else str
    down = list(copies.values())
    by_part = Counter(part(copy.instance.owner) for copy in down)
    largest = max(by_part, key=lambda name: (by_part[name], name), default="")
    others = [copy for copy in down if part(copy.instance.owner) != largest]
    count = sum(counts.values())
    rest = sum(number for name, number in counts.items() if part(name) != largest)
    is_of_one_node = len({copy.node for copy in down}) < 2  # that node is the cause, and others may do better
    is_many = len(down) >= FEWEST_MANY and len(down) > MANY_SHARE * count
    if is_of_one_node or not is_many or len(others) < FEWEST_OTHERS or len(others) <= MANY_SHARE * rest:
        return _find_many_nodes(tenant, down, part, lately, rules)
    whose = f" of {tenant}" if tenant else ""
    shared = _describe_shared(down, (), rules)
    return f"{len(down)} of {count} copies{whose} went down within a minute, and {_what(tenant)} moves; {shared}"


def _find_many_nodes(
    tenant: str, down: Sequence[DownCopy], part: Callable[[str], str], lately: DownFleet, rules: RolloutRules
) -> str:
    """Describes the nodes that have fallen: silent, or with all that ran there down, which is of more than one part."""
    by_node = Counter(copy.node for copy in down)
    parts = Counter(node for node, _ in {(copy.node, part(copy.instance.owner)) for copy in down})
    dark = {node for node, count in by_node.items() if count == lately.by_node.get(node) and parts[node] > 1}
    down = [copy for copy in down if copy.node in dark]
    silent = lately.silent if tenant == ALL else ()
    fallen = sorted({*silent, *dark})
    if len(fallen) < FEWEST_MANY or len(fallen) <= MANY_SHARE * lately.nodes:
        return ""
    names = ", ".join(fallen[:NAMED_NODES]) + (" and more" if len(fallen) > NAMED_NODES else "")
    shared = _describe_shared(down, silent, rules)
    return f"{len(fallen)} of {lately.nodes} nodes fell within a minute, and {_what(tenant)} moves: {names}; {shared}"


def _what(tenant: str) -> str:
    return f"nothing of {tenant}" if tenant else "nothing"


def _describe_shared(down: Collection[DownCopy], silent: Iterable[str], rules: RolloutRules) -> str:
    """Names what all of them share."""
    nodes = {*silent, *(copy.node for copy in down)}
    names: dict[str, set[str]] = {}
    if len(set(rules.gpu_types.values())) > 1:
        names["GPU type"] = {rules.gpu_types.get(node, "") for node in nodes}
    if down and not silent:
        names |= {
            "service": {copy.instance.owner for copy in down},
            "model": {copy.instance.model for copy in down},
            "template": {copy.instance.template for copy in down},
            "image": {copy.instance.runtime.image if copy.instance.runtime else "" for copy in down},
            "folder": {folder for copy in down for folder in _folders(copy.instance)},
            "reason": {copy.status.reason if copy.status else "" for copy in down},
        }
    elif not down:
        names["reason"] = {"silence"}
    shared = [f"{what} {value}" for what, values in names.items() if len(values) == 1 for value in values if value]
    return f"all of them share {', '.join(shared)}" if shared else "they share nothing but the time"


def _folders(instance: AssignedInstance) -> set[str]:
    """Returns the folders that its arguments name, such as a store of models; one without a name if there are none."""
    values = [value for value in (instance.args or {}).values() if isinstance(value, str)]
    values += instance.runtime.argv if instance.runtime else ()
    return {dirname(value) for value in values if value.startswith("/")} or {""}
