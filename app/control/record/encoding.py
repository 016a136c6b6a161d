"""Encodes snapshots and decisions for the record.

The plan in force is encoded like a plan's desired state, so that both are stored once, under the same hash.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite

import msgspec

from app.control.domain.decision import Decision, HeldBackChange
from app.control.domain.snapshot import Snapshot
from app.control.solve.versions import versions
from app.manifests.model import Free
from app.store.plans import plans
from solvers.planning.certificate_wire import others_out
from solvers.planning.plan import OtherPlan, Plan

HEAD = ("at", "epoch", "target", "is_rolling", "is_paused", "is_stopped", "is_held", "suspects", "regrets", "calls")
PARTS = ("nodes", "assigned", "expected", "corrections", "jobs", "tenants", "resting", "failed_places", "measured")


def snapshot_parts(snapshot: Snapshot) -> list[bytes]:
    """Returns a snapshot in parts that change independently: the head, the objects by kind, then those of PARTS."""
    head = {name: getattr(snapshot, name) for name in HEAD}
    by_kind: dict[str, list[object]] = {}
    for item in snapshot.declared:
        by_kind.setdefault(item.kind, []).append(item)
    whole = [head, *({"declared": of_kind} for _, of_kind in sorted(by_kind.items()))]
    whole += [{name: getattr(snapshot, name)} for name in PARTS]
    return [_encode(part) for part in (*whole, snapshot.in_force)]


def join_snapshot(bodies: Sequence[bytes]) -> Snapshot:
    """Joins the parts of a snapshot."""
    *rest, in_force = bodies
    fields: Free = {"declared": [], "in_force": msgspec.json.decode(in_force)}
    for body in rest:
        for name, value in msgspec.json.decode(body).items():
            fields[name] = fields[name] + value if name == "declared" else value
    fields["declared"].sort(key=lambda item: (item["kind"], item["tenant"], item["name"]))
    return msgspec.convert(fields, Snapshot)


def add_others(decision: Decision, read_others: Callable[[], tuple[OtherPlan, ...]]) -> Decision:
    """Returns the decision with other planners' plans in its certificate: where none was asked, those that are read."""
    certificate = decision.plan.certificate
    if certificate is None or certificate.others:
        return decision
    certificate = replace(certificate, others=read_others())
    return replace(decision, plan=replace(decision.plan, certificate=certificate))


def plan_row(snapshot: Snapshot, decision: Decision) -> plans.PlanDraft:
    """Returns the row that stores a decision."""
    plan, counted = decision.plan, decision.answer.counted
    certificate = plan.certificate
    return plans.PlanDraft(
        lane=str(decision.lane),
        state=str(decision.state),
        body=_encode(make_finite(plan)),
        desired=_encode(decision.desired),
        snapshot=snapshot_parts(snapshot),
        reason=decision.reason,
        message=decision.message,
        base=decision.base,
        method=certificate.method if certificate else "",
        seed=_whole(counted.get("seed")),
        work=_whole(counted.get("work")),
        solved_by={
            "versions": versions(),
            "drafts": msgspec.to_builtins(decision.drafts),
            "outcome": decision.answer.outcome,
            "heldBack": [_held_back(held) for held in decision.held_back],
            "causes": msgspec.to_builtins(decision.causes),
            "seconds": decision.answer.seconds,
            "amounts": {
                "resourceCost": certificate.cost.resource if certificate else None,
                "unservedCost": certificate.cost.unserved if certificate else None,
                "unservedPerSecond": sum(line.rate_per_second for line in plan.unserved),
            },
        },
        cost=certificate.cost.total if certificate else None,
        bound=certificate.bound if certificate else None,
        gap=certificate.gap if certificate else None,
        changes=msgspec.to_builtins(plan.changes),
        services=decision.services,
        others=others_out(certificate) if certificate else (),
    )


def _held_back(held: HeldBackChange) -> dict[str, object]:
    return {
        "service": held.service,
        "reason": held.reason,
        "message": held.message,
        "needsSmPercent": held.needs_sm_percent,
        "needsMemoryGib": held.needs_memory_gib,
    }


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value, order="deterministic")


NEVER_MS = 1e9  # written for infinity, which JSON lacks: more requests arrive than are ever answered


def make_finite(plan: Plan) -> Plan:
    """Returns the plan with finite latencies."""
    if all(isfinite(line.latency_ms) for line in plan.instances):
        return plan
    lines = tuple(replace(line, latency_ms=min(line.latency_ms, NEVER_MS)) for line in plan.instances)
    return replace(plan, instances=lines)
