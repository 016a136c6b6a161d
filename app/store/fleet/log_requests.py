"""Requests for the logs of instances, on their way to the nodes that hold them, and the answers on their way back."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from agents.contract.logs import LONGEST_LOG_WAIT_SECONDS, LogText, LogWanted
from app.store.database import versions
from app.store.database.database import statement

STREAM = "log"
ANSWER_SECONDS = 5.0  # for a node to receive a request and to answer it, beyond the wait for more

# The instances that are assigned now, the newest first; without any, the one that was withdrawn last.
INSTANCES = statement(
    "log_instances",
    """
    SELECT node, instance FROM assigned
    WHERE tenant = :tenant AND service = :service AND job = :job
    GROUP BY node, instance
    ORDER BY bool_or(withdrawn_at IS NULL) DESC, max(withdrawn_at) DESC NULLS FIRST, max(first_at) DESC, instance
    LIMIT :most
    """,
)
CURRENT = statement(
    "log_instances_now",
    """
    SELECT count(DISTINCT instance) FROM assigned
    WHERE tenant = :tenant AND service = :service AND job = :job AND withdrawn_at IS NULL
    """,
)
FORGET = statement("forget_log_requests", "DELETE FROM log_request WHERE until < moment() - interval '1 minute'")
WAITING = statement(
    "waiting_log_requests",
    """
    SELECT count(*) AS of_all, count(*) FILTER (WHERE tenant = :tenant) AS of_tenant
    FROM log_request WHERE answered_at IS NULL
    """,
)
ASK = statement(
    "ask_for_logs",
    """
    INSERT INTO log_request (id, tenant, node, instance, begins, version, until)
    SELECT id, :tenant, node, instance, begins, :version, moment() + make_interval(secs => :seconds)
    FROM unnest(CAST(:ids AS text[]), CAST(:nodes AS text[]), CAST(:instances AS text[]), CAST(:begins AS text[]))
        AS wanted (id, node, instance, begins)
    """,
)
SINCE = statement(
    "log_requests_since",
    """
    SELECT id, node, instance, begins, version, extract(epoch FROM until - moment()) AS seconds
    FROM log_request WHERE version > :after AND until > moment() AND answered_at IS NULL ORDER BY version
    """,
)
ANSWER = statement(
    "answer_log_request",
    """
    UPDATE log_request SET answered_at = moment(), ends = :ends, body = :body
    WHERE id = :id AND node = :node AND answered_at IS NULL
    """,
)
ANSWERED = statement(
    "answered_log_requests",
    """
    SELECT node, instance, begins, ends, body, answered_at IS NOT NULL AS is_answered
    FROM log_request WHERE id = ANY(CAST(:ids AS text[])) ORDER BY instance
    """,
)
REMOVE = statement("remove_log_requests", "DELETE FROM log_request WHERE id = ANY(CAST(:ids AS text[]))")


@dataclass(frozen=True, slots=True)
class LoggedInstance:
    """An instance that runs, or ran, and its node."""

    node: str
    instance: str


@dataclass(frozen=True, slots=True)
class DueLog:
    """A request that a node has not answered yet."""

    node: str
    version: int
    wanted: LogWanted


@dataclass(frozen=True, slots=True)
class WaitingLogs:
    """Returns the number of requests that wait for an answer."""

    of_all: int
    of_tenant: int


@dataclass(frozen=True, slots=True)
class LogPart:
    """The answer of one node, or none so far."""

    node: str
    instance: str
    begins: str
    ends: str
    text: str
    is_answered: bool


def instances(connection: Connection, tenant: str, service: str, job: str, most: int) -> list[LoggedInstance]:
    """Returns the current instances of a service or job; without any, the one that ran last."""
    owner = {"tenant": tenant, "service": service, "job": job}
    current = int(connection.scalar(CURRENT, owner) or 0)
    rows = connection.execute(INSTANCES, {**owner, "most": min(most, max(current, 1))})
    return [LoggedInstance(row.node, row.instance) for row in rows]


def waiting(connection: Connection, tenant: str) -> WaitingLogs:
    """Counts the requests that wait for an answer, after it has deleted those that expired a minute ago."""
    connection.execute(FORGET)
    row = connection.execute(WAITING, {"tenant": tenant}).one()
    return WaitingLogs(row.of_all, row.of_tenant)


def ask(connection: Connection, tenant: str, wanted: Sequence[tuple[str, LogWanted]], seconds: float) -> None:
    """Stores requests for a tenant's logs, each with its node, and wakes the servers at which the nodes wait."""
    version = versions.lock(connection, STREAM) + 1
    connection.execute(
        ASK,
        {
            "tenant": tenant,
            "ids": [request.id for _, request in wanted],
            "nodes": [node for node, _ in wanted],
            "instances": [request.instance for _, request in wanted],
            "begins": [request.begins for _, request in wanted],
            "version": version,
            "seconds": seconds,
        },
    )
    versions.advance(connection, STREAM, version)


def _wait_seconds(left: float) -> float:
    return min(LONGEST_LOG_WAIT_SECONDS, max(0.0, float(left) - ANSWER_SECONDS))


def read_since(connection: Connection, after: int) -> list[DueLog]:
    """Returns the requests stored after a version of the stream that are still to be answered."""
    return [
        DueLog(row.node, row.version, LogWanted(row.id, row.instance, row.begins, _wait_seconds(row.seconds)))
        for row in connection.execute(SINCE, {"after": after})
    ]


def keep(connection: Connection, node: str, text: LogText) -> bool:
    """Stores a node's answer; returns whether its request still waits for it."""
    found = connection.execute(ANSWER, {"id": text.id, "node": node, "ends": text.ends, "body": text.text})
    if found.rowcount:
        versions.advance(connection, STREAM, versions.lock(connection, STREAM) + 1)
    return bool(found.rowcount)


def read_answered(connection: Connection, ids: Collection[str]) -> list[LogPart]:
    """Returns the requests with the answers so far."""
    return [LogPart(*row) for row in connection.execute(ANSWERED, {"ids": sorted(ids)})]


def remove(connection: Connection, ids: Collection[str]) -> None:
    """Deletes requests whose reader has its answer or has left."""
    connection.execute(REMOVE, {"ids": sorted(ids)})
