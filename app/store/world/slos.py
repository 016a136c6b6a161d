"""Reads the SLO of every service, and whether it is served, and nothing else of their specs."""

from __future__ import annotations

from datetime import timedelta
from typing import NotRequired, TypedDict

from sqlalchemy import Connection

from app.store.database.database import statement

_SLOS = """
    SELECT tenant || '/' || name, spec -> 'slo' FROM object WHERE kind = 'Service' {of_tenant} ORDER BY tenant, name
"""
SLOS = statement("slos", _SLOS.format(of_tenant=""))
SLOS_OF_TENANT = statement("slos_of_tenant", _SLOS.format(of_tenant="AND tenant = :tenant"))
UNSERVED = statement(
    "unserved_services",
    """
    SELECT tenant || '/' || name FROM object WHERE kind = 'Service' AND EXISTS (
        SELECT FROM jsonb_array_elements(status -> 'conditions') AS condition
        WHERE condition ->> 'type' = 'Planned' AND condition ->> 'status' = 'False'
          AND CAST(condition ->> 'lastTransitionTime' AS timestamptz) <= moment() - CAST(:since AS interval))
    ORDER BY tenant, name
    """,
)


class ServiceSlo(TypedDict):
    """The SLO of a service, as it is declared: of whole answers, or of the first token and those after it."""

    percentile: float
    latencyMs: NotRequired[float]
    ttftMs: NotRequired[float]
    tpotMs: NotRequired[float]


def slos(connection: Connection, tenant: str = "") -> list[tuple[str, ServiceSlo]]:
    """Returns the services, all or a tenant's, each with its SLO, by name."""
    rows = connection.execute(SLOS_OF_TENANT, {"tenant": tenant}) if tenant else connection.execute(SLOS)
    return [(name, promise) for name, promise in rows]


def list_unserved(connection: Connection, since: timedelta = timedelta()) -> list[str]:
    """Returns the services of which plans have left requests unserved for so long."""
    return [name for (name,) in connection.execute(UNSERVED, {"since": since})]
