"""Roles of the database that read reports: whose rows each of them sees, and how it comes to see them."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Connection

from app.store.database import statement

FLEET = ""  # in place of a tenant: everything
SECONDS_A_STATEMENT = 60

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
LISTED = statement("report_readers", "SELECT role, tenant FROM report_reader ORDER BY role, tenant")


class ReaderRefused(Exception):
    """A role cannot be let in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A role and the tenant whose reports it reads; FLEET for all."""

    role: str
    tenant: str


def grant(connection: Connection, role: str, tenants: Sequence[str]) -> None:
    """Let a role that is there read the reports of these tenants, and of no others."""
    declared = set(connection.execute(NAMES).scalars())
    unknown = [name for name in tenants if name not in (FLEET, *declared)]
    if unknown:
        raise ReaderRefused(f"there is no tenant {', '.join(unknown)}; declare it first (kind Tenant)")
    is_above = connection.execute(IS_ABOVE, {"role": role}).scalar()
    if is_above is None:
        raise ReaderRefused(f"there is no role {role} in this database")
    if is_above:
        raise ReaderRefused(f"{role} owns the tables or is above their policies: it sees everything already")
    connection.execute(UNTIE, {"role": role})
    for tenant in tenants:
        connection.execute(TIE, {"role": role, "tenant": tenant})
    connection.execute(ADMIT, {"role": role})


def revoke(connection: Connection, role: str) -> bool:
    """Take it all back; False where the role read nothing. The role itself stays."""
    if not connection.execute(UNTIE, {"role": role}).rowcount:
        return False
    if connection.execute(KNOWN, {"role": role}).scalar() is not None:
        connection.execute(DISMISS, {"role": role})
    return True


def listed(connection: Connection) -> list[Reader]:
    return [Reader(row.role, row.tenant) for row in connection.execute(LISTED)]


def make(connection: psycopg.Connection[Any], role: str) -> str:
    """A login that only reads, and no statement of which runs for long; its password, or '' where it is there already.

    On a connection that commits by itself, of somebody who may make roles: they are the server's, not the database's.
    """
    if connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role]).fetchone():
        return ""
    row = connection.execute("SELECT rolcreaterole OR rolsuper FROM pg_roles WHERE rolname = current_user").fetchone()
    if row is None or not row[0]:
        raise ReaderRefused(
            f"there is no role {role}, and gpuwright may not make one here. As a superuser of the database:\n"
            f"  CREATE ROLE {role} LOGIN PASSWORD '...';\nthen run this again"
        )
    name, password = sql.Identifier(role), secrets.token_urlsafe(24)
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    timeout = sql.Literal(f"{SECONDS_A_STATEMENT}s")
    with connection.transaction():
        connection.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, verifier))
        connection.execute(sql.SQL("ALTER ROLE {} SET default_transaction_read_only = on").format(name))
        connection.execute(sql.SQL("ALTER ROLE {} SET statement_timeout = {}").format(name, timeout))
    return password
