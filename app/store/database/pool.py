"""Makes a pool of connections: links that notice a dead machine, time limits of sessions, slow statements logged."""

from __future__ import annotations

import logging
import time
from typing import Any

import msgspec
import psycopg
from psycopg.types.json import set_json_dumps, set_json_loads
from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import ExecutionContext

from app.store.database import guards
from app.store.database.urls import sqlalchemy_url

log = logging.getLogger(__name__)

CONNECT_SECONDS = 5
# A dead machine or a cut cable sends nothing: without these a query waits for a quarter of an hour.
LINK: dict[str, Any] = {
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
POOL_WAIT_SECONDS = 5

set_json_dumps(msgspec.json.encode)
set_json_loads(msgspec.json.decode)


def create_pool(url: str, *, pool_size: int, direct: bool, slow_query_ms: float) -> Engine:
    """Connects when it is first used. `direct` means that there is no pooler in between."""
    connect: dict[str, object] = {"connect_timeout": CONNECT_SECONDS, "application_name": "gpuwright", **LINK}
    if not direct:
        connect["prepare_threshold"] = None  # prepared statements collide behind a pooler
    engine = create_engine(
        sqlalchemy_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=POOL_WAIT_SECONDS,
        hide_parameters=True,  # errors are logged, and parameters may be secrets
        connect_args=connect,
        json_serializer=lambda value: msgspec.json.encode(value).decode(),
    )
    if direct:
        event.listen(engine, "connect", _guard_session)
    slow_seconds = slow_query_ms / 1000

    def log_if_slow(
        conn: Connection, _cur: object, sql: str, _par: object, context: ExecutionContext | None, _many: bool
    ) -> None:
        seconds = time.perf_counter() - conn.info.get("started", time.perf_counter())
        if seconds >= slow_seconds:
            name = context.execution_options.get("statement", sql[:80]) if context else sql[:80]
            log.warning("slow_query", extra={"statement": name, "seconds": round(seconds, 3)})

    event.listen(engine, "before_cursor_execute", _note_start)
    event.listen(engine, "after_cursor_execute", log_if_slow)
    return engine


def _guard_session(dbapi_connection: psycopg.Connection, _record: object) -> None:
    with dbapi_connection.cursor() as cursor:
        cursor.execute(guards.OF_SESSION.encode())
    dbapi_connection.commit()


def _note_start(conn: Connection, *_: object) -> None:
    conn.info["started"] = time.perf_counter()
