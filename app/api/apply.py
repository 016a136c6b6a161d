"""Declares many objects at once, all or nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, NotRequired, TypeAlias, TypedDict

from fastapi import Query, Request
from msgspec import Meta
from sqlalchemy import Connection

from app.api.answers.solvers import call_solvers
from app.api.bodies import manifests
from app.api.change_events import record_changes
from app.api.replies import Reply, TypedRouter
from app.api.requests import Body, By, DryRun, answer, context, write_once
from app.control.domain.specs import RATE_PER_SECOND, rate_per_second
from app.manifests.attainable import SLO_ATTAINABLE
from app.manifests.diff import diff
from app.manifests.drafts import describe_draft
from app.manifests.model import STORED, Free, Key, Kind
from app.manifests.offline import DEFAULT_TENANT
from app.manifests.shipped_templates import find_unfit
from app.problem import HttpProblem
from app.store.world import objects
from app.store.world.objects import StoredObject
from app.world.admission import find_not_startable
from app.world.carried import find_uncarried
from app.world.decisions import Action, ObjectDecision
from app.world.declare import declare
from app.world.sets import make_fingerprint, name_set

STEEP_RISE = 5.0  # times a declared rate

router = TypedRouter(prefix="/api/v1", tags=["apply"])


StoredKind: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": [str(kind) for kind in STORED]})]
_DONE = [str(action) for action in Action if action is not Action.STATUS]
AppliedAction: TypeAlias = Annotated[str, Meta(extra_json_schema={"enum": _DONE})]


class FieldChangeWire(TypedDict):
    """A field before and after."""

    path: str
    before: Annotated[object, Meta(description="The value before; null if it was absent")]
    after: Annotated[object, Meta(description="The value after; null if it is absent")]


class AppliedChangeWire(TypedDict):
    """What an apply did to an object."""

    kind: StoredKind
    tenant: NotRequired[str]
    name: str
    action: AppliedAction
    resourceVersion: int
    diff: list[FieldChangeWire]


class AppliedWire(TypedDict):
    """What an apply did, and what it warns of."""

    dryRun: bool
    resourceVersion: int
    changes: list[AppliedChangeWire]
    warnings: list[str]
    pruneFingerprint: NotRequired[Annotated[str, Meta(description="With prune: a fingerprint of what is deleted")]]


@router.post("/apply", summary="Declare many objects, all or nothing; dryRun=true gives the field-level diff")
def apply(
    request: Request,
    by: By,
    body: Body,
    dry: DryRun = False,
    set_name: Annotated[
        str, Query(alias="set", max_length=200, description="Name of the set that the objects join, by a label")
    ] = "",
    prune: Annotated[bool, Query(description="Delete what the set has and the body leaves out; needs set")] = False,
    allow_empty: Annotated[
        bool, Query(alias="allowEmpty", description="Let an empty list of files prune all objects of the set")
    ] = False,
    prune_fingerprint: Annotated[
        str,
        Query(
            alias="pruneFingerprint",
            max_length=64,
            description="That of a dry run's answer: refused if other objects would be deleted",
        ),
    ] = "",
) -> Reply[AppliedWire]:
    applied_as = name_set(by.principal, set_name, prune=prune, fingerprint=prune_fingerprint) if set_name else None
    if applied_as is None and prune:
        raise HttpProblem("bad-request", "prune deletes what left a set: name the set, set=NAME")
    wanted = manifests(request, body, allow_empty=prune and allow_empty)
    settings = context(request).settings

    def write(connection: Connection) -> Reply[AppliedWire]:
        done = declare(
            connection, by, wanted, dry_run=dry, applied_as=applied_as, currency=settings.currency,
            most_objects=settings.tenant_objects,
        )  # fmt: skip
        record_changes(connection, done.decisions, dry_run=dry)
        uncarried = find_uncarried(connection, done.decisions, _carries, names_fleet=not by.principal.tenant)
        warnings = [text for decision in done.decisions for text in _warnings(connection, decision)]
        warnings += [text for decision in done.decisions for text in _find_steep_rise(decision)]
        warnings += _find_unstated(connection, done.decisions)
        applied: AppliedWire = {
            "dryRun": dry,
            "resourceVersion": done.resource_version,
            "changes": [_change(decision, dry) for decision in done.decisions],
            "warnings": [*warnings, *(f"{key}: {why}" for key, why in uncarried.items())],
        }
        if prune:
            gone = (decision.key for decision in done.decisions if decision.action is Action.DELETED)
            applied["pruneFingerprint"] = make_fingerprint(gone)
        return answer(applied)

    return write_once(request, body, write, dry_run=dry)


def _carries(batch: int, exec_ms: float, slo_ms: float, percentile: float) -> float:
    """Returns what an instance carries within an SLO as the planner counts it; without solvers, what it does busy."""

    def rate() -> float:
        from solvers.planning.fleet.grids import RateTerms

        terms = RateTerms(slo_ms, percentile, variation=0.0, exec_margin=0.0, utilization=1.0)
        return terms.accepted_rate(batch, exec_ms)

    try:
        return call_solvers(rate)
    except HttpProblem:
        return batch * 1000 / exec_ms


def _change(decision: ObjectDecision, dry: bool) -> AppliedChangeWire:
    key, stored = decision.key, decision.object
    # A new or deleted object differs in every field, which only a dry run wants to see.
    shown = {Action.UPDATED, Action.CREATED, Action.DELETED} if dry else {Action.UPDATED}
    change: AppliedChangeWire = {
        "kind": str(key.kind),
        "name": key.name,
        "action": Action.UNCHANGED if decision.action is Action.STATUS else decision.action,
        "resourceVersion": stored.resource_version,
        "diff": [
            {"path": field.path, "before": field.before, "after": field.after}
            for field in diff(_read_declared(decision.before), _read_declared(decision.after))
        ]
        if decision.action in shown
        else [],
    }
    if key.tenant:
        change["tenant"] = key.tenant
    return change


def _read_declared(stored: StoredObject | None) -> Free:
    labels, spec = (stored.labels, stored.spec) if stored else ({}, {})
    return {"metadata": {"labels": labels}, "spec": spec}


def _warnings(connection: Connection, decision: ObjectDecision) -> list[str]:
    """Returns why an accepted object will not work. Of its conditions, only the one that applying judges counts."""
    if decision.action not in (Action.CREATED, Action.UPDATED):
        return []
    unfit = list(find_unfit(decision.object.spec)) if decision.key.kind is Kind.MODEL else []
    unfit += find_not_startable(connection, decision.object)
    if decision.key.kind is Kind.PROFILE and (words := describe_draft(decision.object.spec)):
        unfit.append(words)
    if unfit:
        return [f"{decision.key}: {why}" for why in unfit]
    return [
        f"{decision.key}: {known['message']}"
        for known in decision.object.conditions
        if known["type"] == SLO_ATTAINABLE and known["status"] == "False"
    ]


def _find_steep_rise(decision: ObjectDecision) -> Iterator[str]:
    """Yields what to look at where a rate rises so far that it may be mistyped: other services may lose their GPUs."""
    key, before, after = decision.key, decision.before, decision.after
    if key.kind is not Kind.SERVICE or before is None or after is None:
        return
    old, new = (rate_per_second(stored.spec) for stored in (before, after))
    if 0 < old * STEEP_RISE <= new:
        yield (
            f"{key}: ratePerSecond is {new / old:.3g} times what it was, {old:g} -> {new:g}; what others would lose: "
            f"gpuwright what-if --rate {key.tenant}/{key.name}={new:g}"
        )


def _find_unstated(connection: Connection, decisions: Sequence[ObjectDecision]) -> Iterator[str]:
    """Yields what holds for new services in place of what they leave out: a rate, and a tenant who pays."""
    tenant = Key(Kind.TENANT, "", DEFAULT_TENANT)
    new = [decision for decision in decisions if decision.action is Action.CREATED]
    # A tenant of this name that is declared is meant.
    is_meant = any(decision.key == tenant for decision in new) or objects.get(connection, tenant) is not None
    for decision in new:
        key = decision.key
        if key.kind is not Kind.SERVICE:
            continue
        if "ratePerSecond" not in decision.object.spec:
            yield (
                f"{key}: ratePerSecond is left out, so {RATE_PER_SECOND:g} request a second is planned until a gateway "
                "has counted its requests"
            )
        if key.tenant == DEFAULT_TENANT and not is_meant:
            yield (
                f"{key}: its tenant is {DEFAULT_TENANT}, as where metadata.tenant is left out: its cost is booked on "
                "that tenant, which has no limit and no budget"
            )
