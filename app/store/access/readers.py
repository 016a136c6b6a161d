"""Roles of the database that read reports: whose rows each of them sees, and how it comes to see them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg import errors, sql
from sqlalchemy import Connection

from app.store.database.database import statement

FLEET: Final = None  # in place of tenants: everything. No name of a tenant can be taken for it
_FLEET_ROW = ""  # how report_reader and its policies say so; a tenant without a name cannot be declared
SECONDS_A_STATEMENT = 60
MOST_CONNECTIONS = 5  # at once, of a reader: Postgres' hundred are for the control plane
MOST_BYTES_OF_A_NAME = 63  # Postgres cuts off what is longer

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
# Backups of one file hold the table, but neither roles nor what was granted to them: those are the server's.
LISTED = statement(
    "report_readers",
    """
    SELECT role, tenant, rolname IS NOT NULL AS is_known,
        coalesce(has_schema_privilege(pg_roles.oid, 'report', 'USAGE'), false) AS is_admitted
    FROM report_reader LEFT JOIN pg_roles ON rolname = role ORDER BY role, tenant
    """,
)


class ReaderRefused(Exception):
    """A role cannot be let in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ReportReader:
    """A role and the tenant whose reports it reads; FLEET for all."""

    role: str
    tenant: str | None
    is_known: bool = True  # to this server
    is_admitted: bool = True  # to the views


def check(connection: Connection, role: str, tenants: Sequence[str] | None) -> None:
    """Refuse what cannot be granted, before a role is made for it."""
    _check_name(role)
    if tenants is not FLEET:
        declared = set(connection.execute(NAMES).scalars())
        unknown = [name or "''" for name in tenants if name not in declared]
        if unknown:
            raise ReaderRefused(f"there is no tenant {', '.join(unknown)}; declare it first (kind Tenant)")
        if not tenants:
            raise ReaderRefused(f"no tenant is named whose reports {role} shall read")
    if connection.execute(IS_ABOVE, {"role": role}).scalar():
        raise ReaderRefused(f"{role} owns the tables or is above their policies: it sees everything already")


def _check_name(role: str) -> None:
    allowed = f"allowed are 1 to {MOST_BYTES_OF_A_NAME} bytes of printable text"
    if not role or not role.isprintable() or len(role.encode()) > MOST_BYTES_OF_A_NAME:
        raise ReaderRefused(f"{role!r} is no name for a role; {allowed}")
    if role in ("public", "none") or role.startswith("pg_"):
        raise ReaderRefused(
            f"{role} is Postgres' own, and no role of one reader; {allowed}, but not public, none or pg_..."
        )


def grant(connection: Connection, role: str, tenants: Sequence[str] | None) -> None:
    """Let a role that is there read the reports of these tenants, and of no others; with FLEET, of all."""
    check(connection, role, tenants)
    if connection.execute(KNOWN, {"role": role}).scalar() is None:
        raise ReaderRefused(f"there is no role {role} in this database")
    connection.execute(UNTIE, {"role": role})
    for tenant in [_FLEET_ROW] if tenants is FLEET else tenants:
        connection.execute(TIE, {"role": role, "tenant": tenant})
    connection.execute(ADMIT, {"role": role})


def revoke(connection: Connection, role: str) -> bool:
    """Take it all back; False where the role read nothing. The role itself stays."""
    if not connection.execute(UNTIE, {"role": role}).rowcount:
        return False
    if connection.execute(KNOWN, {"role": role}).scalar() is not None:
        connection.execute(DISMISS, {"role": role})
    return True


def listed(connection: Connection) -> list[ReportReader]:
    return [
        ReportReader(row.role, FLEET if row.tenant == _FLEET_ROW else row.tenant, row.is_known, row.is_admitted)
        for row in connection.execute(LISTED)
    ]


def make(connection: psycopg.Connection[Any], role: str) -> str:
    """A login that only reads unless it says otherwise; its password, or '' where it is there already.

    On a connection that commits by itself, of somebody who may make roles: they are the server's, not the database's.
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


def limit(connection: psycopg.Connection[Any], role: str) -> str:
    """Bound the connections of a role that nobody has set a limit for; else what a superuser has to run for that.

    On a role that `check` let pass, and a connection as that of `make`.
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
