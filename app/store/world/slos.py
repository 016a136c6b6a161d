"""Reads the SLO of every service, and nothing else of their specs."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from app.store.database.database import statement

_SLOS = """
    SELECT tenant || '/' || name, spec -> 'slo' FROM object WHERE kind = 'Service' {of_tenant} ORDER BY tenant, name
"""
SLOS = statement("slos", _SLOS.format(of_tenant=""))
SLOS_OF_TENANT = statement("slos_of_tenant", _SLOS.format(of_tenant="AND tenant = :tenant"))


def slos(connection: Connection, tenant: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Returns the services, all or a tenant's, each with its SLO, by name."""
    rows = connection.execute(SLOS_OF_TENANT, {"tenant": tenant}) if tenant else connection.execute(SLOS)
    return [(name, promise) for name, promise in rows]
