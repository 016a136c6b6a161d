"""Compares the plan in force with the baselines and with what was held, once per hour, and stores the savings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from sqlalchemy import Connection

from app.control.answer.savings.baselines import costs, plan_costs
from app.control.domain.leading import Deposed
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.record.planner_store import PlannerStore
from app.control.record.records import RecordedPlan, read_plan, snapshot_of
from app.ledger.held import read_held
from app.store.database import lease
from app.store.money import savings
from app.store.money.savings import Due, Saving

log = logging.getLogger(__name__)

MOST_PLANS, MOST_HOURS = 3, 12  # in one turn; the next turns compare the rest
NANO = 10**9
HOUR = timedelta(hours=1)


def record_savings(store: PlannerStore) -> int:
    """Records savings up to the last hour that is over; returns how many hours were added."""
    if not store.epoch:
        return 0
    known: dict[int, Sequence[Saving]] = {}
    hours = 0
    for due in store.database.read(savings.due_hours)[:MOST_HOURS]:
        if due.generation not in known:
            if len(known) == MOST_PLANS:
                break
            known[due.generation] = _value_plan(store, due)
        held = read_held(store.database, due.hour, due.hour + HOUR)
        _write(store, due, add_held(known[due.generation], held))
        hours += 1
    return hours


def compare_plan(snapshot: Snapshot, recorded_plan: RecordedPlan) -> list[Saving]:
    """Computes what a recorded plan and the baselines cost each tenant per hour for what the plan serves."""
    problem = formulate(snapshot).problem
    services = problem.services.keys()
    instances = tuple(
        line for line in recorded_plan.plan.instances if line.service in services and line.node in problem.nodes
    )
    plan = type(recorded_plan.plan)(instances)
    paid, others = plan_costs(problem, plan), costs(problem, plan)
    for baseline, other in others.items():
        if other.not_served:
            log.info("baseline_not_served", extra={"baseline": baseline, "services": list(other.not_served)})
    return [
        Saving(tenant, _nano(paid[tenant]), *(_nano(other.by_tenant.get(tenant, 0.0)) for other in others.values()))
        for tenant in sorted(paid)
    ]


def add_held(rows: Sequence[Saving], held: Mapping[str, int] | None) -> list[Saving]:
    """Returns the rows of a plan with what each tenant held in the hour, and rows of tenants that the plan left out."""
    if held is None:
        return [replace(row, held_nano=None) for row in rows]
    planned = {row.tenant: row for row in rows}
    return [
        replace(planned.get(tenant, Saving(tenant, 0, 0, 0, 0)), held_nano=held.get(tenant, 0))
        for tenant in sorted(planned.keys() | held.keys())
    ]


def _value_plan(store: PlannerStore, due: Due) -> Sequence[Saving]:
    def read(connection: Connection) -> tuple[Sequence[Saving], tuple[Snapshot, RecordedPlan] | None]:
        before = savings.last_savings(connection, due.generation)
        recorded = None if before else read_plan(connection, due.generation)
        return before, (snapshot_of(connection, recorded), recorded) if recorded else None

    before, found = store.database.read(read)
    return compare_plan(*found) if found else before


def _write(store: PlannerStore, due: Due, rows: Sequence[Saving]) -> None:
    epoch = store.epoch

    def write(connection: Connection) -> None:
        if not lease.is_newest(connection, epoch):
            raise Deposed(f"epoch {epoch} is over")
        savings.keep(connection, due, rows)

    store.database.write(write)


def _nano(per_hour: float) -> int:
    return round(per_hour * NANO)
