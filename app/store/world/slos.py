"""Reads the SLO of every service, and whether it is served or ever was, and nothing else of their specs."""

from __future__ import annotations

from collections.abc import Collection
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
# A copy was assigned, and an answer came if there was a request.
NEVER_RAN = statement(
    "services_that_never_ran",
    """
    SELECT tenant || '/' || name AS name, coalesce((
        SELECT condition ->> 'message' FROM jsonb_array_elements(status -> 'conditions') AS condition
        WHERE condition ->> 'type' IN ('Planned', 'Running') AND condition ->> 'status' <> 'True'
        ORDER BY condition ->> 'type' LIMIT 1), 'no request to it was ever answered') AS reason
    FROM object WHERE kind = 'Service' AND tenant || '/' || name = ANY(CAST(:services AS text[])) AND (
        NOT EXISTS (
            SELECT FROM assigned WHERE assigned.tenant = object.tenant AND service = object.name
              AND (withdrawn_at IS NULL OR withdrawn_at > created_at))
        OR EXISTS (
            SELECT FROM service_load AS load WHERE load.tenant = object.tenant AND service = object.name AND errors > 0)
        AND NOT EXISTS (
            SELECT FROM service_load AS load WHERE load.tenant = object.tenant AND service = object.name AND answers > 0
            UNION ALL
            SELECT FROM service_load_hour AS load
            WHERE load.tenant = object.tenant AND service = object.name AND answers > 0))
    ORDER BY tenant, object.name
    """,
)

UNPROFILED = statement(
    "services_without_a_profile",
    """
    SELECT tenant || '/' || name AS name, spec ->> 'model' AS model FROM object
    WHERE kind = 'Service' AND NOT EXISTS (
        SELECT FROM object AS profile
        WHERE profile.kind = 'Profile' AND profile.spec ->> 'model' = object.spec ->> 'model')
    ORDER BY tenant, object.name
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


def find_never_ran(connection: Connection, services: Collection[str]) -> dict[str, str]:
    """Returns those of the services that have never run since they were declared, each with the reason."""
    if not services:
        return {}
    rows = connection.execute(NEVER_RAN, {"services": sorted(services)})
    return {row.name: row.reason for row in rows}


def find_unprofiled(connection: Connection) -> dict[str, str]:
    """Returns the services whose model has no Profile at all, each with its model: no plan can serve them."""
    return {row.name: row.model for row in connection.execute(UNPROFILED)}
