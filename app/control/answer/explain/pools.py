"""Explains a pool: why it has as many nodes as it has, what it waits for, and its last orders and returns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TypedDict

from app.control.answer.explain.wording import clock, count, money
from app.manifests.model import Fields
from app.store.fleet.rented import RentedRow
from app.store.world.objects import rfc3339
from solvers.planning.wire import PlanLinesWire

RENTING = "Renting"
NAMED = 20  # nodes, the first by name


class PoolNodeWire(TypedDict):
    """An order of a pool that has not ended, and what the plan puts on its node."""

    node: str
    state: str
    services: list[str]
    jobs: list[str]


class PoolExplanationWire(TypedDict):
    """Why a pool has as many nodes as it has."""

    pool: str
    nodes: list[PoolNodeWire]
    waitsFor: str
    sentences: list[str]
    lately: list[str]


def explain_pool(
    name: str,
    spec: Fields,
    price_per_hour: float,
    rows: Sequence[RentedRow],
    plan: PlanLinesWire | None,
    conditions: Sequence[Fields],
    lately: Sequence[str],
    now: datetime,
) -> PoolExplanationWire:
    """Returns what a pool has and waits for; `price_per_hour` is that of a node, `rows` are orders of all pools."""
    live = sorted((row for row in rows if row.pool == name and row.ended_at is None), key=lambda row: row.node)
    nodes = [_describe_use(row, plan) for row in live]
    condition = next((known for known in conditions if known["type"] == RENTING), None)
    waits = str(condition["message"]) if condition else ""
    sentences = [
        _count_nodes(name, spec, price_per_hour, live),
        *_find_reasons(spec, live, condition),
        *(_describe_node(row, node, now) for row, node in zip(live[:NAMED], nodes, strict=False)),
    ]
    if len(live) > NAMED:
        sentences.append(f"and {len(live) - NAMED} more nodes; see: gpuwright get nodes")
    return {"pool": name, "nodes": nodes, "waitsFor": waits, "sentences": sentences, "lately": list(lately)}


def _describe_use(row: RentedRow, plan: PlanLinesWire | None) -> PoolNodeWire:
    instances, jobs = (plan["instances"], plan["jobs"]) if plan else ((), ())
    return {
        "node": row.node,
        "state": row.state,
        "services": sorted({instance["service"] for instance in instances if instance["node"] == row.node}),
        "jobs": sorted({job["job"] for job in jobs if job["node"] == row.node}),
    }


def _count_nodes(name: str, spec: Fields, price_per_hour: float, live: Sequence[RentedRow]) -> str:
    each = f"{count(int(spec['gpusPerNode']), 'GPU')} of {spec['gpuType']} at {money(price_per_hour)} an hour"
    limits = f"of {int(spec.get('min', 0))} to {int(spec['max'])}"
    if not live:
        return f"{name} has no node, {limits}; one would have {each}"
    states = Counter(row.state for row in live)
    spelled = ", ".join(f"{number} {state}" for state, number in sorted(states.items()))
    return f"{name} has {count(len(live), 'node')} {limits}: {spelled}; each has {each}"


def _find_reasons(spec: Fields, live: Sequence[RentedRow], condition: Fields | None) -> Iterator[str]:
    """Yields why there are no more and no fewer nodes."""
    least, most = int(spec.get("min", 0)), int(spec["max"])
    if condition is None:
        yield "the planner has not looked at it yet"
    elif condition["status"] == "True":
        yield f"why not more or fewer: {condition['message']}"
    else:
        yield f"something is wrong with an order: {condition['message']}"
    if 0 < least >= len(live):
        yield f"it keeps {count(least, 'node')} whatever the load, its min"
    if len(live) >= most:
        yield f"it has as many as its max, {most}, allows"


def _describe_node(row: RentedRow, node: PoolNodeWire, now: datetime) -> str:
    """Returns the state of a node, what it is for, and until when it is paid for whatever happens."""
    runs = ", ".join((*node["services"], *node["jobs"]))
    text = f"{row.node}: {row.state} since {clock(rfc3339(row.since))}; "
    if row.joined_at is None and not runs:
        text += f"its start takes about {row.start_seconds:g} s"
    else:
        text += f"the plan puts {runs} there" if runs else "the plan puts nothing there"
    if row.idle_seconds >= 60:
        text += f"; it had nothing for {count(int(row.idle_seconds / 60), 'minute')}"
    paid_until = row.paid_at + timedelta(seconds=row.start_seconds + row.minimum_seconds) if row.paid_at else now
    if paid_until > now:
        text += f"; it is paid for until {clock(rfc3339(paid_until))} at least"
    return text + (f"; {row.message}" if row.message else "")
