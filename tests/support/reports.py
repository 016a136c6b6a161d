"""Node reports for tests: small, right, and easy to make wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import text

from app.store.database.database import Database
from app.store.fleet import assignments
from tests.support.server import Reply, RunningServer

ASSIGNED = """
    INSERT INTO assigned (node, instance, gpu, tenant, service, job, sm_percent, memory_gib, dedicated, first_at)
    VALUES (:node, :instance, 0, :tenant, :service, '', 30, 2, false, now())
"""


def this_minute() -> datetime:
    return datetime.now(UTC).replace(second=0, microsecond=0)


def instance(name: str = "i-1", **fields: Any) -> dict[str, Any]:
    known = {"id": name, "gpu": 0, "tenant": "shop", "service": "search", "smPercent": 30, "memoryGib": 2}
    return known | {"requests": 10, "latencyCounts": [0, 4, 6], "busySeconds": 3.5} | fields


def report(
    node: str, sequence: int = 0, minute: datetime | None = None, incarnation: int = 1, **fields: Any
) -> dict[str, Any]:
    minute = minute or this_minute()
    known = {
        "node": node,
        "incarnation": incarnation,
        "sequence": sequence,
        "at": minute.isoformat(),
        "minute": minute.isoformat(),
        "gpus": [{"index": 0, "utilizationPercent": 50, "powerMeanW": 100, "energyCounterMj": 1000}],
        "instances": [instance()],
    }
    return known | fields


def interval(name: str, start: datetime, end: datetime | None = None, **fields: Any) -> dict[str, Any]:
    known: dict[str, Any] = {"id": name, "instance": "i-1", "gpu": 0, "startedAt": start.isoformat()}
    known |= {"tenant": "shop", "service": "search", "smPercent": 30, "memoryGib": 2}
    if end is not None:
        known["endedAt"] = end.isoformat()
    return known | fields


def send(server: RunningServer, token: str, body: Any, node: str = "") -> Reply:
    path = f"/api/v1/nodes/{node or body['node']}/report"
    return server.request("POST", path, body, token=token, headers={"Content-Type": "application/json"})


def poll(server: RunningServer, token: str, node: str, after: int = 0, wait: float = 0) -> Reply:
    path = f"/api/v1/nodes/{node}/assignment?after={after}&waitSeconds={wait:g}"
    return server.request("GET", path, token=token, timeout_seconds=wait + 20)


def body_of(node: str, epoch: int, generation: int) -> Callable[[int], str]:
    return lambda version: f'{{"node":"{node}","version":{version},"epoch":{epoch},"generation":{generation}}}'


def decide(database: Database, epoch: int, generation: int, *nodes: str) -> dict[str, int]:
    """Write assignments as a leader of `epoch` does; the versions that were taken."""
    drafts = [assignments.AssignmentDraft(node, generation, body_of(node, epoch, generation)) for node in nodes]
    return database.write(lambda connection: assignments.write(connection, epoch, drafts))


def note_assigned(database_url: str, node: str, instance: str, service: str = "shop/search") -> None:
    """As if the node had been assigned the instance: gateways route no copies of others."""
    tenant, _, name = service.partition("/")
    values = {"node": node, "instance": instance, "tenant": tenant, "service": name}
    database = Database(database_url, pool_size=1)
    try:
        database.write(lambda connection: connection.execute(text(ASSIGNED), values))
    finally:
        database.close()
