"""Things of a tenant that nobody else may read of, each with the canary in its name, wherever names are kept."""

from __future__ import annotations

import msgspec
from sqlalchemy import text

from app.control.domain.events import Reason, event_of
from app.store.database import lease
from app.store.database.database import Database
from app.store.plans import plans
from app.store.plans.plans import PlanDraft
from app.store.world import events
from solvers.planning.plan import Plan, Unplaced, Unserved
from solvers.planning.plan_fields import CHANGES
from solvers.planning.problem import Instance, PlacedJob
from tests.support.reports import instance, note_assigned, report, send
from tests.support.server import RunningServer
from tests.support.world import job, model, profile, service

CANARY = "canary"
SERVICE, JOB = f"{CANARY}/{CANARY}-service", f"{CANARY}/{CANARY}-job"
LOADS = """
    INSERT INTO service_load (tenant, service, at, seconds, requests, answers)
    SELECT :tenant, :service, now() - n * interval '1 minute', 60, 100, 100 FROM generate_series(1, 5) AS n
"""
NO_SNAPSHOT = "UPDATE plan SET snapshot = '[\"00\"]'"  # as of a plan whose snapshot is no longer stored


def declare_canary(server: RunningServer) -> None:
    """Objects, a copy on node-1, loads, events, and a plan in force that also serves others."""
    documents = [
        model(f"{CANARY}-model", tenants=[CANARY]),
        profile(f"{CANARY}-model"),
        service(f"{CANARY}-service", CANARY, f"{CANARY}-model"),
        job(f"{CANARY}-job", CANARY),
    ]
    reply = server.request("POST", "/api/v1/apply", documents)
    assert reply.status == 200, reply.text
    note_assigned(server.database_url, "node-1", CANARY, SERVICE)
    copy = {"id": f"{CANARY}.1", "instance": CANARY, "gpu": 0, "stage": "ready", "address": "10.0.0.1:9000"}
    message = report("node-1", instances=[instance(CANARY, tenant=CANARY, service=f"{CANARY}-service")], copies=[copy])
    assert send(server, server.token("node", node="node-1"), message).status == 200
    database = Database(server.database_url, pool_size=1)
    try:
        epoch = database.write(lambda connection: lease.take(connection, "a planner", 1e6))
        assert epoch is not None
        database.write(lambda connection: plans.record(connection, epoch, _plan()))
        database.write(lambda connection: connection.execute(text(NO_SNAPSHOT)))
        told_of = [
            event_of(reason, f"{CANARY} says why", kind="Service", name=SERVICE, about=f"{CANARY}-1")
            for reason in (Reason.UNSERVED, Reason.STEP_FAILED)
        ]
        database.write(lambda connection: events.record(connection, told_of))
        values = {"tenant": CANARY, "service": f"{CANARY}-service"}
        database.write(lambda connection: connection.execute(text(LOADS), values))
    finally:
        database.close()


def _plan() -> PlanDraft:
    def placed(name: str) -> Instance:
        return Instance(f"{name}/1", name, "node-1", 0, "fp16", 8, 5.0, 20, 2.0, 1500.0, 9.0)

    instances = (placed("shop/search"), placed("lab/classify"), placed(SERVICE))
    whole = Plan(
        instances,
        jobs=(PlacedJob(JOB, "node-1", 1, 50, 9.0),),
        unserved=(Unserved(SERVICE, 3.0, f"{CANARY} needs more"),),
        unplaced=(Unplaced(JOB, f"{CANARY} waits"),),
    )
    held_back = {"service": SERVICE, "reason": "too_many_moves", "message": f"{CANARY} moves too often"}
    solved_by = {"outcome": "solved", "heldBack": [held_back]}
    services = ["lab/classify", "shop/search", SERVICE]
    body = msgspec.json.encode(whole)
    return PlanDraft(
        "full", "done", body, b"{}", [b"{}"], message=CANARY, services=services, solved_by=solved_by,
        changes=dict.fromkeys(CHANGES, 1),
    )  # fmt: skip
