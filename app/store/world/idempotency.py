"""Answers stored by idempotency key, in the transaction of the effect that they report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from app.store.database.database import statement


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """The first answer under a key, and the hash of its request."""

    request_hash: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes


GET = statement(
    "kept_answer",
    """
    SELECT request_hash, status, headers, body FROM idempotency
    WHERE principal = :principal AND key = :key
    """,
)
KEEP = statement(
    "keep_answer",
    """
    INSERT INTO idempotency (principal, key, request_hash, status, headers, body)
    VALUES (:principal, :key, :request_hash, :status, CAST(:headers AS jsonb), :body)
    """,
)
LOCK_KEY = statement(
    "lock_idempotency_key", "SELECT pg_advisory_xact_lock(hashtextextended(:principal || ' ' || :key, 71))"
)
MOST_ANSWERS = 20_000  # of each token; of these the newest are kept, and of these again those within the bytes
MOST_ANSWER_BYTES = 256 * 1024 * 1024
PRUNE = statement(
    "prune_answers",
    """
    DELETE FROM idempotency WHERE (principal, key) IN (
        SELECT principal, key FROM idempotency WHERE created_at <= now() - make_interval(secs => :seconds)
        ORDER BY created_at LIMIT :limit)
    """,
)
PRUNE_MOST = statement(
    "prune_most_answers",
    """
    WITH RECURSIVE found (principal) AS (
        (SELECT principal FROM idempotency ORDER BY principal LIMIT 1)
        UNION ALL
        SELECT (SELECT later.principal FROM idempotency AS later WHERE later.principal > found.principal
                ORDER BY later.principal LIMIT 1)
        FROM found WHERE found.principal IS NOT NULL
    )
    DELETE FROM idempotency WHERE (principal, key) IN (
        SELECT found.principal, answer.key FROM found CROSS JOIN LATERAL (
            SELECT key, row_number() OVER newest AS number, sum(octet_length(body)) OVER newest AS bytes
            FROM idempotency WHERE idempotency.principal = found.principal
            WINDOW newest AS (ORDER BY created_at DESC, key)) AS answer
        WHERE number > :most OR bytes > :most_bytes
        LIMIT :limit)
    """,
)


def read_answer(connection: Connection, principal: str, key: str) -> KeptAnswer | None:
    """Returns the answer already given; locks the key, so that a concurrent twin waits for this request."""
    connection.execute(LOCK_KEY, {"principal": principal, "key": key})
    row = connection.execute(GET, {"principal": principal, "key": key}).one_or_none()
    return KeptAnswer(row.request_hash, row.status, row.headers, row.body) if row else None


def keep(connection: Connection, principal: str, key: str, answer: KeptAnswer, headers_json: str) -> None:
    connection.execute(
        KEEP,
        {
            "principal": principal,
            "key": key,
            "request_hash": answer.request_hash,
            "status": answer.status,
            "headers": headers_json,
            "body": answer.body,
        },
    )


def prune(connection: Connection, older_than_seconds: float, limit: int) -> int:
    """Deletes up to `limit` old answers; returns how many."""
    old = connection.execute(PRUNE, {"seconds": older_than_seconds, "limit": limit}).rowcount
    most = {"most": MOST_ANSWERS, "most_bytes": MOST_ANSWER_BYTES, "limit": limit}
    return old + connection.execute(PRUNE_MOST, most).rowcount
