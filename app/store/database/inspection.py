"""Inspects a database: version, schema, durability, role, and whether LISTEN works or a pooler is in between."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import Literal

import psycopg
from psycopg.rows import TupleRow

from app.store.database import schema
from app.store.database.urls import libpq_url

CONNECT_SECONDS = 10
OLDEST = 15
DURABLE = ("fsync", "full_page_writes", "synchronous_commit")
CHANNEL = "gpuwright_check"
ROUND_TRIPS = 20

Verdict = Literal["ok", "note", "wrong"]


@dataclass(frozen=True, slots=True)
class DatabaseFinding:
    """One line of the check. `wrong` means that gpuwright cannot or must not run like this."""

    name: str
    value: str
    verdict: Verdict = "ok"
    advice: str = ""


def inspect(url: str, listen_url: str) -> list[DatabaseFinding]:
    """Returns all findings about the database at `url`; raises psycopg.OperationalError if it is unreachable."""
    with _connect(url) as connection:
        pooled = _is_pooled(connection)
        findings = [
            _server_version(connection),
            _schema_version(connection),
            *_durability(connection),
            _role(connection),
            _round_trip(connection),
            _pooler(pooled),
        ]
        notified = _receives(listen_url or url, connection)
    findings.append(_listening(notified, bool(listen_url), pooled))
    return findings


def _connect(url: str) -> psycopg.Connection[TupleRow]:
    return psycopg.connect(libpq_url(url), autocommit=True, prepare_threshold=None, connect_timeout=CONNECT_SECONDS)


def _server_version(connection: psycopg.Connection[TupleRow]) -> DatabaseFinding:
    number = int(str(_value(connection, "SHOW server_version_num")))
    version = str(_value(connection, "SHOW server_version"))
    if number < OLDEST * 10_000:
        return DatabaseFinding("server version", version, "wrong", f"gpuwright needs Postgres {OLDEST} or newer")
    return DatabaseFinding("server version", version)


def _schema_version(connection: psycopg.Connection[TupleRow]) -> DatabaseFinding:
    known = _value(connection, "SELECT to_regclass('alembic_version') IS NOT NULL")
    if not known:
        return DatabaseFinding("schema", "none", "wrong", schema.advice(None))
    version, oldest = connection.execute(schema.SERVES.text.encode()).fetchone() or ("none", "none")
    reason = schema.refusal_for(version, oldest)
    newer = version != schema.KNOWN and not reason
    advice = f"newer than this gpuwright, which knows {schema.KNOWN}; it serves {oldest} and later" if newer else reason
    return DatabaseFinding("schema", version, "wrong" if reason else "note" if newer else "ok", advice)


def _durability(connection: psycopg.Connection[TupleRow]) -> list[DatabaseFinding]:
    findings = []
    for name in DURABLE:
        value = str(_value(connection, f"SHOW {name}"))
        # `local` and the remote levels also wait for the server's own disk.
        safe = value != "off"
        advice = "" if safe else f"a crash can lose or corrupt an acknowledged write; set {name} = on"
        findings.append(DatabaseFinding(name, value, "ok" if safe else "wrong", advice))
    return findings


def _role(connection: psycopg.Connection[TupleRow]) -> DatabaseFinding:
    name = str(_value(connection, "SELECT current_user"))
    if _value(connection, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"):
        advice = "use a role that owns this database but is not a superuser"
        return DatabaseFinding("role", f"{name}, a superuser", "note", advice)
    return DatabaseFinding("role", name)


def _round_trip(connection: psycopg.Connection[TupleRow]) -> DatabaseFinding:
    milliseconds = []
    for _ in range(ROUND_TRIPS):
        started = time.perf_counter()
        connection.execute("SELECT 1")
        milliseconds.append((time.perf_counter() - started) * 1000)
    median = statistics.median(milliseconds)
    advice = "each request makes several round trips; move the server closer to the database" if median > 5 else ""
    return DatabaseFinding("round trip", f"{median:.1f} ms", "note" if advice else "ok", advice)


def _is_pooled(connection: psycopg.Connection[TupleRow]) -> bool:
    """Finds a pooler: it invents the process number that it sends at connection time, where Postgres sends its own."""
    return bool(connection.info.backend_pid != _value(connection, "SELECT pg_backend_pid()"))


def _pooler(pooled: bool) -> DatabaseFinding:
    if pooled:
        return DatabaseFinding(
            "pooler", "yes", "note", "leave GPUWRIGHT_DATABASE_DIRECT unset: a pooler may break prepared statements"
        )
    return DatabaseFinding("pooler", "none; GPUWRIGHT_DATABASE_DIRECT=1 is safe")


def _receives(url: str, notifier: psycopg.Connection[TupleRow]) -> bool:
    with _connect(url) as listener:
        listener.execute(f"LISTEN {CHANNEL}")
        notifier.execute("SELECT pg_notify(%s, '')", [CHANNEL])
        return any(True for _ in listener.notifies(timeout=2.0, stop_after=1))


def _listening(notified: bool, own_url: bool, pooled: bool) -> DatabaseFinding:
    through = "DATABASE_LISTEN_URL" if own_url else "DATABASE_URL"
    if notified:
        return DatabaseFinding("LISTEN", f"works through {through}")
    if own_url:
        return DatabaseFinding("LISTEN", "receives nothing", "wrong", "DATABASE_LISTEN_URL must bypass every pooler")
    advice = "gpuwright polls for changes every 100 ms instead" + (
        "; set DATABASE_LISTEN_URL to an address that bypasses the pooler" if pooled else ""
    )
    return DatabaseFinding("LISTEN", "receives nothing", "note", advice)


def _value(connection: psycopg.Connection[TupleRow], query: str) -> object:
    row = connection.execute(query.encode()).fetchone()
    return row[0] if row else None
