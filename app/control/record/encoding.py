"""How snapshots and decisions stand on record.

What stands is said in the words in which plans say what they want: the one is kept under the hash of the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import msgspec

from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.snapshot import Snapshot
from app.control.solve.versions import versions
from app.store.plans import plans
from solvers.planning.plan import Plan

HEAD = ("at", "epoch", "target", "moved", "is_rolling", "rolled_back_at")
PARTS = ("nodes", "expected", "corrections", "jobs", "tenants", "resting")


def snapshot_parts(snapshot: Snapshot) -> list[bytes]:
    """A snapshot in parts that change apart from each other: the moment, what is declared, then those of PARTS."""
    head = {name: getattr(snapshot, name) for name in HEAD}
    by_kind: dict[str, list[Any]] = {}
    for one in snapshot.declared:
        by_kind.setdefault(one.kind, []).append(one)
    whole = [head, *({"declared": of_kind} for _, of_kind in sorted(by_kind.items()))]
    whole += [{name: getattr(snapshot, name)} for name in PARTS]
    return [_encoded(part) for part in (*whole, snapshot.in_force)]


def join_snapshot(bodies: Sequence[bytes]) -> Snapshot:
    """The snapshot that these are the parts of."""
    *rest, in_force = bodies
    said: dict[str, Any] = {"declared": [], "in_force": msgspec.json.decode(in_force)}
    for body in rest:
        for name, value in msgspec.json.decode(body).items():
            said[name] = said[name] + value if name == "declared" else value
    said["declared"].sort(key=lambda one: (one["kind"], one["tenant"], one["name"]))
    return msgspec.convert(said, Snapshot)


def plan_row(snapshot: Snapshot, decision: Decision) -> plans.PlanDraft:
    """The decision as the store keeps it."""
    plan, recipe = decision.plan, decision.answer.recipe
    certificate = plan.certificate
    return plans.PlanDraft(
        lane=str(decision.lane),
        state=str(decision.state),
        body=_encoded(make_finite(plan)),
        desired=_encoded(decision.desired),
        snapshot=snapshot_parts(snapshot),
        reason=decision.reason,
        message=decision.message,
        base=decision.base,
        method=certificate.method if certificate else "",
        seed=_whole(recipe.get("seed")),
        work=_whole(recipe.get("work")),
        solved_by={
            "versions": versions(),
            "recipe": recipe,
            "outcome": decision.answer.outcome,
            "heldBack": [_held_back(one) for one in decision.held_back],
            "seconds": decision.answer.seconds,
        },
        cost=certificate.cost.total if certificate else None,
        bound=certificate.bound if certificate else None,
        gap=certificate.gap if certificate else None,
        changes=msgspec.to_builtins(plan.changes),
        services=decision.services,
    )


def _held_back(one: HeldBackChange) -> dict[str, Any]:
    return {
        "service": one.service,
        "reason": one.reason,
        "message": one.message,
        "needsSmPercent": one.needs_sm_percent,
        "needsMemoryGib": one.needs_memory_gib,
    }


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _encoded(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


NEVER_MS = 1e9  # said in place of infinity, which JSON has no word for: more arrives than is ever answered


def make_finite(plan: Plan) -> Plan:
    """The plan in numbers that can be written down."""
    if all(isfinite(one.latency_ms) for one in plan.instances):
        return plan
    lines = tuple(replace(one, latency_ms=min(one.latency_ms, NEVER_MS)) for one in plan.instances)
    return replace(plan, instances=lines)
