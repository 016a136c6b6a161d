"""Recorded plans on the wire: whole, or the part that a tenant may see."""

from __future__ import annotations

from typing import NotRequired, TypedDict, cast

import msgspec
from sqlalchemy import Connection

from app.api.answers.recent import Recent
from app.control.answer.explain.plan import HeldBackChangeWire
from app.control.domain.events import spell_why
from app.manifests.model import Fields, Free, Key, Kind
from app.store.plans import pieces, plans
from app.store.plans.cross_checks import PlanCheckWire
from app.store.plans.plan_reads import PlanHeadRow
from app.store.plans.plans import StoredPlanRow
from app.store.world import objects
from app.store.world.objects import rfc3339
from app.wire import MomentText
from solvers.planning.certificate_wire import PlanCertificateWire
from solvers.planning.plan import Plan
from solvers.planning.wire import (
    PlanBodyWire,
    PlanChangesWire,
    PlanLinesWire,
    ReleasableNodeWire,
    written,
)

ANOTHER = "another tenant"


class PlanFactsWire(TypedDict):
    """What a plan says of itself."""

    generation: int
    at: MomentText
    lane: str
    state: str
    reason: str | None
    why: str  # what called for it, in words
    base: int | None
    services: list[str]
    epoch: NotRequired[int]  # this and what follows: not for tenants
    message: NotRequired[str | None]
    method: NotRequired[str | None]
    cost: NotRequired[float | None]
    resourceCost: NotRequired[float | None]
    unservedCost: NotRequired[float | None]
    unservedPerSecond: NotRequired[float | None]
    bound: NotRequired[float | None]
    gap: NotRequired[float | None]
    decidedBy: NotRequired[str | None]
    decidedAt: NotRequired[MomentText | None]
    asked: NotRequired[list[str]]
    rollout: NotRequired[Free | None]
    crossCheck: NotRequired[PlanCheckWire | None]


class PlanHeadWire(PlanFactsWire):
    """A plan as lists show it."""

    changes: NotRequired[PlanChangesWire | None]


class PlanOthersWire(TypedDict):
    """How many lines belong to other tenants."""

    tenant: str
    instances: int
    jobs: int
    unserved: int
    unplaced: int
    heldBack: int


class PlanContentWire(PlanLinesWire, TypedDict):
    """What a plan runs; a tenant gets its own lines, and in `others` how many more there are."""

    heldBack: list[HeldBackChangeWire]
    warnings: NotRequired[list[str]]
    releasable: NotRequired[list[ReleasableNodeWire]]
    changes: NotRequired[PlanChangesWire]
    certificate: NotRequired[PlanCertificateWire | None]
    others: NotRequired[PlanOthersWire]


class PlanWire(PlanFactsWire, PlanContentWire):
    """A plan; a tenant gets its own lines, and in `others` how many more there are."""


NOTHING: PlanContentWire = {"instances": [], "jobs": [], "unserved": [], "unplaced": [], "heldBack": []}


def head(row: PlanHeadRow, tenant: str = "") -> PlanHeadWire:
    """Returns a plan as lists show it. A tenant sees no message, no price and no decider.

    `cost` is what bound and gap are about: the price of GPUs, and of what is unserved by the policy.
    """
    amounts = row["amounts"] or {}
    head: PlanHeadWire = {
        "generation": row["generation"],
        "at": rfc3339(row["at"]),
        "lane": row["lane"],
        "state": row["state"],
        "reason": row["reason"] or None,
        "why": spell_why(row["reason"] or "", "" if tenant else row["message"] or ""),
        "base": row["base"],
        "services": [name for name in row["services"] if not tenant or name.startswith(f"{tenant}/")],
    }
    if tenant:
        return head
    return {
        **head,
        "epoch": row["epoch"],
        "message": row["message"] or None,
        "method": row["method"],
        "cost": row["cost"],
        "resourceCost": amounts.get("resourceCost"),
        "unservedCost": amounts.get("unservedCost"),
        "unservedPerSecond": amounts.get("unservedPerSecond"),
        "bound": row["bound"],
        "gap": row["gap"],
        "changes": row["changes"],
        "decidedBy": row["decided_by"] or None,
        "decidedAt": rfc3339(row["decided_at"]) if row["decided_at"] else None,
        "asked": sorted(row["asked"]),
        "rollout": row["rollout"],
        "crossCheck": row["cross_check"],
    }


def body(connection: Connection, generation: int) -> PlanContentWire | None:
    """Returns the plan as the contract spells it, with what was held back; None where it is no longer kept."""
    row = plans.read_row(connection, generation)
    if row is None:
        return None
    plan = read_plan(connection, row)
    keys = [Key(Kind.JOB, *line.job.split("/", 1)) for line in plan.jobs]
    jobs = objects.get_many(connection, keys) if keys else {}
    offline = frozenset(f"{key.tenant}/{key.name}" for key, job in jobs.items() if job.spec.get("type") == "offline")
    wire = _written.get((bytes(row.body), offline), lambda: written(plan, offline))
    held: list[HeldBackChangeWire] = row.solved_by.get("heldBack", [])
    return cast(PlanContentWire, {**wire, "heldBack": held})


def solved_by(connection: Connection, generation: int) -> Fields:
    """Returns how a plan was found and what called for it, as recorded; nothing where it is no longer kept."""
    row = plans.read_row(connection, generation)
    return row.solved_by if row else {}


def read_plan(connection: Connection, row: StoredPlanRow) -> Plan:
    """Returns the plan of a row. No caller may change it, because others get the same object."""
    digest = bytes(row.body)
    return _decoded.get(digest, lambda: msgspec.json.decode(pieces.get(connection, [digest])[digest], type=Plan))


_decoded: Recent[bytes, Plan] = Recent()
_written: Recent[tuple[bytes, frozenset[str]], PlanBodyWire] = Recent()


def select_tenant(plan: PlanContentWire, tenant: str) -> PlanContentWire:
    """Returns the tenant's own instances, jobs and reasons, and how much more there is."""

    def mine(name: str) -> bool:
        return name.startswith(f"{tenant}/")

    instances, changes = plan["instances"], plan["heldBack"]
    named = [line["service"] for line in (*instances, *plan["unserved"], *changes)] + [line["id"] for line in instances]
    named += [line["job"] for line in (*plan["jobs"], *plan["unplaced"])]
    foreign = {name for name in named if name and not mine(name)}
    own: PlanContentWire = {
        "instances": [instance for instance in plan["instances"] if mine(instance["service"])],
        "jobs": [job for job in plan["jobs"] if mine(job["job"])],
        "unserved": [line for line in plan["unserved"] if mine(line["service"])],
        "unplaced": [line for line in plan["unplaced"] if mine(line["job"])],
        "heldBack": [_hide_names(change, foreign) for change in plan["heldBack"] if mine(change["service"])],
    }
    own["others"] = {
        "tenant": ANOTHER,
        "instances": len(plan["instances"]) - len(own["instances"]),
        "jobs": len(plan["jobs"]) - len(own["jobs"]),
        "unserved": len(plan["unserved"]) - len(own["unserved"]),
        "unplaced": len(plan["unplaced"]) - len(own["unplaced"]),
        "heldBack": len(plan["heldBack"]) - len(own["heldBack"]),
    }
    return own


def _hide_names(change: HeldBackChangeWire, foreign: set[str]) -> HeldBackChangeWire:
    """Leaves out a message that names something of another tenant."""
    return {**change, "message": ""} if any(name in change["message"] for name in foreign) else change
