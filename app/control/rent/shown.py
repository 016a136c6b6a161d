"""What a pool's status shows: how many nodes it has, in which states, and an order that needs a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from app.control.domain.events import Reason
from app.control.domain.snapshot import DeclaredObject
from app.control.rent.question import RentalPool
from app.control.rent.states import ENDED, UNSEEN, RentedNode, RentState
from app.control.tell.conditions import FALSE, TRUE, Statement
from app.control.tell.statuses import ObjectStatus
from app.manifests.model import JSON, Key, Kind
from app.world.conditions import ConditionFields, ObjectCondition

JUST_ENDED = timedelta(minutes=1)
TROUBLED = {  # the states that somebody should look at, the worst first
    RentState.LATE: Reason.RENT_LATE,
    RentState.REFUSED: Reason.RENT_REFUSED,
}


def find_unordered(
    declared: Sequence[DeclaredObject], rows: Iterable[RentedNode], now: datetime
) -> dict[str, str]:  # fmt: skip
    """Returns the Nodes that name a pool without an order, with that pool: they may be paid for.

    A node whose order has just ended may have been deleted since the declarations were read.
    """
    ordered = {row.node for row in rows if row.ended_at is None or now - row.since < JUST_ENDED}
    named = {item.name: str(item.spec.get("pool", "")) for item in declared if item.kind == "Node"}
    return {node: pool for node, pool in named.items() if pool and node not in ordered}


def describe_pools(
    pools: Mapping[str, RentalPool], rows: Sequence[RentedNode], unordered: Mapping[str, str], waits: Mapping[str, str]
) -> dict[Key, ObjectStatus]:  # fmt: skip
    """Returns the status of each pool."""
    return {
        Key(Kind.POOL, "", name): _describe(pool, rows, unordered, waits.get(name, "")) for name, pool in pools.items()
    }


def _describe(
    pool: RentalPool, rows: Sequence[RentedNode], unordered: Mapping[str, str], waits: str
) -> ObjectStatus:  # fmt: skip
    mine = [row for row in rows if row.pool == pool.name]
    counts = Counter(row.state for row in mine if row.state not in ENDED)
    nodes: dict[str, JSON] = {str(state): count for state, count in sorted(counts.items())}
    fields: dict[str, JSON] = {"rented": counts.total(), "nodes": nodes}
    if pool.is_spot:
        fields["reclaims"] = _describe_reclaims(pool)
    nameless = [node for node, named in unordered.items() if named == pool.name]
    return ObjectStatus((_condition(mine, nameless, waits),), fields)


def _describe_reclaims(pool: RentalPool) -> dict[str, JSON]:
    """Returns what is learned of the pool's reclaims, by whole node hours: a status is written when it changes."""
    whole = replace(pool, reclaims=replace(pool.reclaims, node_hours=float(int(pool.reclaims.node_hours))))
    return {
        "notices": pool.reclaims.notices, "nodeHours": int(pool.reclaims.node_hours),
        "ratePerHour": round(whole.reclaims.per_hour, 4), "costPerHour": round(whole.reclaims_per_hour, 5),
    }  # fmt: skip


def _condition(mine: Sequence[RentedNode], unordered: Sequence[str], waits: str) -> ConditionFields:
    """Returns the condition Renting: False names one order that may cost money unseen, or that got no node.

    Steps of orders have events of their own; only a node without an order has none, so that its Statement makes one.
    """
    leaving = [row for row in mine if row.state is RentState.LEAVING and row.called_at]
    stuck = [row for row in leaving if not row.returned or UNSEEN in row.message]
    if stuck:
        reason = Reason.RENT_STAYS if UNSEEN in stuck[0].message else Reason.RENT_HOOK_FAILED
        return _describe_order(reason, f"node {stuck[0].node}: {stuck[0].message}")
    if unordered:
        why = f"node {min(unordered)} names this pool, and no order for it is known: {UNSEEN}"
        return Statement("Renting", FALSE, Reason.RENT_UNORDERED, why)
    for state, reason in TROUBLED.items():
        if found := [row for row in mine if row.state is state and row.called_at]:
            newest = max(found, key=lambda row: row.since)
            return _describe_order(reason, f"node {newest.node}: {newest.message}")
    return ObjectCondition("Renting", TRUE, "AsNeeded", waits or "it has what the load needs, or what is paid anyway")


def _describe_order(reason: Reason, message: str) -> ObjectCondition:
    return ObjectCondition("Renting", FALSE, reason.camel, message)
