"""Recorded plans on the wire: whole, or the part that a tenant may see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection

from app.api.recent import Recent
from app.manifests.model import Key, Kind
from app.store.plans import pieces, plans
from app.store.world import objects
from app.store.world.objects import rfc3339
from solvers.planning.plan import Plan
from solvers.planning.wire import written

ANOTHER = "another tenant"
Row = Mapping[str, Any]


def head(row: Row, tenant: str = "") -> dict[str, Any]:
    """Returns a plan as lists show it. A tenant sees no message, no price and no decider.

    `cost` is what bound and gap are about: the price of GPUs, and of what is unserved by the policy.
    """
    amounts = row["amounts"] or {}
    head = {
        "generation": row["generation"],
        "at": rfc3339(row["at"]),
        "lane": row["lane"],
        "state": row["state"],
        "reason": row["reason"] or None,
        "base": row["base"],
        "services": [name for name in row["services"] if not tenant or name.startswith(f"{tenant}/")],
    }
    if tenant:
        return head
    return head | {
        "epoch": row["epoch"],
        "message": row["message"] or None,
        "method": row["method"],
        "cost": row["cost"],
        **{name: amounts.get(name) for name in ("resourceCost", "unservedCost", "unservedPerSecond")},
        "bound": row["bound"],
        "gap": row["gap"],
        "changes": row["changes"],
        "decidedBy": row["decided_by"] or None,
        "decidedAt": rfc3339(row["decided_at"]) if row["decided_at"] else None,
        "asked": sorted(row["asked"]),
        "rollout": row["rollout"],
    }


def body(connection: Connection, generation: int) -> dict[str, Any] | None:
    """Returns the plan as the contract spells it, with what was held back; None where it is no longer kept."""
    row = plans.read_row(connection, generation)
    if row is None:
        return None
    plan = decoded(connection, row)
    keys = [Key(Kind.JOB, *line.job.split("/", 1)) for line in plan.jobs]
    jobs = objects.get_many(connection, keys) if keys else {}
    offline = frozenset(f"{key.tenant}/{key.name}" for key, job in jobs.items() if job.spec.get("type") == "offline")
    wire = _written.get((bytes(row["body"]), offline), lambda: written(plan, offline))
    return wire | {"heldBack": row["solved_by"].get("heldBack", [])}


def decoded(connection: Connection, row: Row) -> Plan:
    """Returns the plan of a row. No caller may change it, because others get the same object."""
    digest = bytes(row["body"])
    return _decoded.get(digest, lambda: msgspec.json.decode(pieces.get(connection, [digest])[digest], type=Plan))


_decoded: Recent[bytes, Plan] = Recent()
_written: Recent[tuple[bytes, frozenset[str]], dict[str, Any]] = Recent()


def of_tenant(plan: Mapping[str, Any], tenant: str) -> dict[str, Any]:
    """Returns the tenant's own instances, jobs and reasons, and how much more there is."""

    def mine(line: Mapping[str, Any], field: str) -> bool:
        return str(line[field]).startswith(f"{tenant}/")

    own = {
        "instances": [instance for instance in plan["instances"] if mine(instance, "service")],
        "jobs": [job for job in plan["jobs"] if mine(job, "job")],
        "unserved": [line for line in plan["unserved"] if mine(line, "service")],
        "unplaced": [line for line in plan["unplaced"] if mine(line, "job")],
        "heldBack": [change for change in plan["heldBack"] if mine(change, "service")],
    }
    others = {name: len(plan[name]) - len(kept) for name, kept in own.items()}
    return own | {"others": {"tenant": ANOTHER} | others}
