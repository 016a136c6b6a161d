"""Audits what agents refuse because their templates or allow-lists do not allow it, so that its origin can be found."""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection

from agents.contract.assignments import Assignment
from agents.contract.reports import HeldBack, Report
from app.http.buckets import Buckets
from app.nodes import metrics
from app.nodes.detail import InstanceOwner
from app.store.fleet import assignments, refusals
from app.store.world import audit
from app.world.write import Actor

REASONS = ("refused_arguments", "no_template", "not_admitted")
MOST_KNOWN = 100_000
_AUDITED = Buckets(0.1, 20.0)  # by node; the next report repeats the rest in ten seconds

Known = set[tuple[str, str, int]]  # (node, instance, generation)


def find_new(report: Report, known: Known) -> list[HeldBack]:
    """Returns the refusals of the report to audit now; only a few, however many there are."""
    fresh = []
    for held in report.held_back:
        if held.reason not in REASONS or (report.node, held.instance, report.generation) in known:
            continue
        if _AUDITED.take(report.node, time.monotonic()):
            metrics.REFUSED.labels("not_audited").inc()
            break
        fresh.append(held)
    return fresh


def write_refusals(connection: Connection, actor: Actor, report: Report, fresh: Sequence[HeldBack]) -> None:
    """Writes one audit record per instance and generation, however often and to whichever replica it is reported."""
    noted = refusals.note(connection, report.node, report.generation, [held.instance for held in fresh])
    if not noted:
        return
    found = assignments.read_assignment(connection, report.node)
    assigned = msgspec.json.decode(found[1], type=Assignment).instances if found else ()
    owners = {line.id: InstanceOwner(line.tenant, line.service, line.job) for line in assigned}
    audit.record(
        connection,
        [
            _entry(actor, report, held, owners.get(held.instance, InstanceOwner()))
            for held in fresh
            if held.instance in noted
        ],
    )


def remember(known: Known, report: Report, fresh: Sequence[HeldBack]) -> None:
    if len(known) + len(fresh) > MOST_KNOWN:
        known.clear()
    known.update((report.node, held.instance, report.generation) for held in fresh)


def _entry(actor: Actor, report: Report, held: HeldBack, owner: InstanceOwner) -> audit.AuditEntry:
    whose = f" of {owner.tenant}/{owner.service or owner.job}" if owner.service or owner.job else ""
    detail = f"{report.node} refused generation {report.generation}{whose}: {held.reason}"
    return actor.entry(
        "run",
        "Instance",
        tenant=owner.tenant,
        name=held.instance,
        outcome="refused",
        detail=f"{detail}: {held.message}" if held.message else detail,
    )
