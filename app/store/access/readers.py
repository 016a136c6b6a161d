"""Database roles that read reports, and the tenants whose rows each of them may read."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import errors, sql
from psycopg.rows import TupleRow
from sqlalchemy import Connection

from app.store.database.database import statement

FLEET: Final = None  # in place of tenants: all of them. No tenant's name can be mistaken for it
_FLEET_ROW = ""  # the same in report_reader and its policies; no tenant has an empty name
SECONDS_A_STATEMENT = 60
MOST_CONNECTIONS = 5  # at once, for each reader: the control plane needs Postgres' hundred
MOST_BYTES_OF_A_NAME = 63  # Postgres truncates longer names

KNOWN = statement("is_role_known", "SELECT 1 FROM pg_roles WHERE rolname = :role")
IS_ABOVE = statement(
    "is_role_above_policies",
    """
    SELECT rolsuper OR rolbypassrls OR pg_has_role(oid, (
        SELECT relowner FROM pg_class WHERE oid = CAST('public.report_reader' AS regclass)), 'USAGE')
    FROM pg_roles WHERE rolname = :role
    """,
)
NAMES = statement("tenants_declared", "SELECT name FROM object WHERE kind = 'Tenant' ORDER BY name")
TIE = statement(
    "tie_reader",
    "INSERT INTO report_reader (role, tenant) VALUES (:role, :tenant) ON CONFLICT (role, tenant) DO NOTHING",
)
UNTIE = statement("untie_reader", "DELETE FROM report_reader WHERE role = :role")
ADMIT = statement("admit_reader", "SELECT report.admit(:role)")
DISMISS = statement("dismiss_reader", "SELECT report.dismiss(:role)")
# A backup file holds the table, but neither roles nor their grants: those belong to the Postgres server.
LISTED = statement(
    "report_readers",
    """
    SELECT role, tenant, rolname IS NOT NULL AS is_known,
        coalesce(has_schema_privilege(pg_roles.oid, 'report', 'USAGE'), false) AS is_admitted
    FROM report_reader LEFT JOIN pg_roles ON rolname = role ORDER BY role, tenant
    """,
)


class ReaderRefused(Exception):
    """A role cannot be granted reports; the message names what to do."""


@dataclass(frozen=True, slots=True)
class ReportReader:
    """A role and the tenant whose reports it reads; FLEET for all."""

    role: str
    tenant: str | None
    is_known: bool = True  # to this server
    is_admitted: bool = True  # to the views


def check(connection: Connection, role: str, tenants: Sequence[str] | None) -> None:
    """Refuses a grant that is not possible, before a role is created for it."""
    _check_name(role)
    if tenants is not FLEET:
        declared = set(connection.execute(NAMES).scalars())
        unknown = [name or "''" for name in tenants if name not in declared]
        if unknown:
            raise ReaderRefused(f"there is no tenant {', '.join(unknown)}; declare it first (kind Tenant)")
        if not tenants:
            raise ReaderRefused(f"name at least one tenant whose reports {role} may read")
    if connection.execute(IS_ABOVE, {"role": role}).scalar():
        raise ReaderRefused(f"{role} owns the tables or bypasses their policies: it reads everything already")


def _check_name(role: str) -> None:
    allowed = f"allowed are 1 to {MOST_BYTES_OF_A_NAME} bytes of printable text"
    if not role or not role.isprintable() or len(role.encode()) > MOST_BYTES_OF_A_NAME:
        raise ReaderRefused(f"{role!r} cannot name a role; {allowed}")
    if role in ("public", "none") or role.startswith("pg_"):
        raise ReaderRefused(f"{role} is reserved by Postgres; {allowed}, but not public, none or pg_...")


def grant(connection: Connection, role: str, tenants: Sequence[str] | None) -> None:
    """Lets an existing role read the reports of these tenants and of no others; with FLEET, of all tenants."""
    check(connection, role, tenants)
    if connection.execute(KNOWN, {"role": role}).scalar() is None:
        raise ReaderRefused(f"there is no role {role} in this database")
    connection.execute(UNTIE, {"role": role})
    for tenant in [_FLEET_ROW] if tenants is FLEET else tenants:
        connection.execute(TIE, {"role": role, "tenant": tenant})
    connection.execute(ADMIT, {"role": role})


def revoke(connection: Connection, role: str) -> bool:
    """Takes all grants back and keeps the role; False if it had none."""
    if not connection.execute(UNTIE, {"role": role}).rowcount:
        return False
    if connection.execute(KNOWN, {"role": role}).scalar() is not None:
        connection.execute(DISMISS, {"role": role})
    return True


def list_readers(connection: Connection) -> list[ReportReader]:
    return [
        ReportReader(row.role, FLEET if row.tenant == _FLEET_ROW else row.tenant, row.is_known, row.is_admitted)
        for row in connection.execute(LISTED)
    ]


def create_role(connection: psycopg.Connection[TupleRow], role: str) -> str:
    """Creates a login that is read-only by default, and returns its password; '' if the role exists.

    The connection is in autocommit mode, and its role may create roles.
    """
    _check_name(role)
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
        return ""
    row = connection.execute(
        "SELECT rolcreaterole OR rolsuper, quote_ident(%s) FROM pg_roles WHERE rolname = current_user", [role]
    ).fetchone()
    if row is None or not row[0]:
        quoted = row[1] if row else role
        raise ReaderRefused(
            f"there is no role {role}, and gpuwright may not make one here. As a superuser of the database:\n"
            f"  CREATE ROLE {quoted} LOGIN CONNECTION LIMIT {MOST_CONNECTIONS} PASSWORD '...';\nthen run this again"
        )
    name, password = sql.Identifier(role), secrets.token_urlsafe(24)
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    create = sql.SQL("CREATE ROLE {} LOGIN CONNECTION LIMIT {} PASSWORD {}")
    timeout = sql.Literal(f"{SECONDS_A_STATEMENT}s")
    with connection.transaction():
        connection.execute(create.format(name, sql.Literal(MOST_CONNECTIONS), verifier))
        connection.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(name))
        connection.execute(sql.SQL("ALTER ROLE {} SET statement_timeout = {}").format(name, timeout))
    return password


def limit_connections(connection: psycopg.Connection[TupleRow], role: str) -> str:
    """Limits the connections of a role that has no limit; returns what a superuser must run if this role may not.

    `check` has passed the role; the connection is like that of `make`.
    """
    unbounded = "SELECT 1 FROM pg_roles WHERE rolname = %s AND rolcanlogin AND rolconnlimit < 0"
    if not connection.execute(unbounded, [role]).fetchone():
        return ""
    change = sql.SQL("ALTER ROLE {} CONNECTION LIMIT {}").format(sql.Identifier(role), sql.Literal(MOST_CONNECTIONS))
    try:
        connection.execute(change)
    except errors.InsufficientPrivilege:
        return change.as_string(connection)
    return ""
