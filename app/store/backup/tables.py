"""Lists the tables, columns and sequences of a backup, and copies their rows."""

from __future__ import annotations

from psycopg import Cursor, sql
from sqlalchemy import Connection

from app.store.database.database import statement

SEEDED = "version"  # the only table into which a migration inserts rows

# Parents before the children that refer to them.
TABLES = statement(
    "tables_to_keep",
    """
    WITH RECURSIVE named AS (
        SELECT oid, relname FROM pg_class
        WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition
              AND relname <> 'alembic_version'
    ), depth (oid, level) AS (
        SELECT oid, 0 FROM named
        UNION
        SELECT conrelid, level + 1 FROM depth
        JOIN pg_constraint ON confrelid = depth.oid AND contype = 'f' AND conrelid <> confrelid
        WHERE level < 32
    )
    SELECT relname, (
        SELECT array_agg(attname::text ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = named.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
    ) AS columns
    FROM named JOIN depth USING (oid)
    GROUP BY named.oid, relname ORDER BY max(level), relname
    """,
)
SEQUENCES = statement(
    "sequences_to_keep",
    """
    SELECT relname FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'S' ORDER BY relname
    """,
)
NO_LIMITS = statement(
    "no_limits_for_a_backup",
    "SELECT set_config('statement_timeout', '0', true), set_config('lock_timeout', '30s', true), "
    "set_config('idle_in_transaction_session_timeout', '0', true), set_config('timezone', 'UTC', true)",
)


def raw_cursor(connection: Connection) -> Cursor:
    cursor: Cursor = connection.connection.driver_connection.cursor()  # type: ignore[union-attr]
    return cursor


def identifiers(names: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def quote_name(connection: Connection, name: str) -> str:
    return connection.dialect.identifier_preparer.quote(name)
