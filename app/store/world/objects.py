"""Declared objects: read singly, by keys or by page, and written in batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import TypedDict
from uuid import UUID

import msgspec
from sqlalchemy import Connection, TextClause

from app.manifests.model import API_VERSION, Free, Key, Kind, WrittenSpec
from app.store.database.database import SqlRow, statement

COLUMNS = "uid, kind, tenant, name, labels, spec, status, generation, resource_version, admits, created_at, updated_at"


class WrittenCondition(TypedDict):
    """A condition in the status of an object, and since when it holds."""

    type: str
    status: str  # True, False, Unknown
    reason: str
    message: str
    lastTransitionTime: str
    observedGeneration: int


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object as the database stores it."""

    uid: UUID
    kind: Kind
    tenant: str
    name: str
    labels: dict[str, str]
    spec: WrittenSpec
    status: Free
    generation: int
    resource_version: int
    admits: list[str] | None  # the tenants that may read it; None: all
    created_at: datetime
    updated_at: datetime
    selectable: list[str] = field(default_factory=list)  # written, never read back

    @property
    def key(self) -> Key:
        return Key(self.kind, self.tenant, self.name)

    @property
    def conditions(self) -> list[WrittenCondition]:
        found: list[WrittenCondition] = self.status.get("conditions", [])
        return found

    def admitting(self, tenant: str) -> bool:
        """Returns True if `tenant` may read this model or profile."""
        return self.admits is None or tenant in self.admits

    def wire(self) -> Free:
        """Returns the object as the API, the watch and the audit show it."""
        metadata: dict[str, object] = {"name": self.name}
        if self.tenant:
            metadata["tenant"] = self.tenant
        metadata |= {
            "labels": self.labels,
            "uid": str(self.uid),
            "generation": self.generation,
            "resourceVersion": self.resource_version,
            "createdAt": rfc3339(self.created_at),
            "updatedAt": rfc3339(self.updated_at),
        }
        return {
            "apiVersion": API_VERSION,
            "kind": str(self.kind),
            "metadata": metadata,
            "spec": self.spec,
            "status": self.status,
        }


@lru_cache(maxsize=4096)  # objects declared together share their times
def rfc3339(moment: datetime) -> str:
    """Returns a time in UTC with milliseconds: 2026-11-20T10:30:00.123Z."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of the objects of a kind."""

    kind: Kind
    tenant: str = ""  # of a tenanted kind; empty: every tenant
    admitting: str = ""  # only what this tenant may read
    has: Sequence[str] = ()  # entries of `selectable` that must all be there
    lacks: Sequence[str] = ()  # entries of which none may be there


GET = statement("get_object", f"SELECT {COLUMNS} FROM object WHERE kind = :kind AND tenant = :tenant AND name = :name")
GET_MANY = statement(
    "get_objects_by_key",
    f"""
    SELECT {COLUMNS} FROM object
    JOIN unnest(CAST(:kinds AS text[]), CAST(:tenants AS text[]), CAST(:names AS text[]))
        AS wanted (kind, tenant, name) USING (kind, tenant, name)
    """,
)
NAMES = statement(
    "names_of_kind",
    """
    SELECT name FROM object
    WHERE kind = :kind AND tenant = '' AND (:admitting = '' OR admits IS NULL OR :admitting = ANY (admits))
    ORDER BY name LIMIT 10000
    """,
)

# The page's two forms: without selectors the primary order suffices, with them the GIN index answers.
_PAGE = f"""
    SELECT {COLUMNS} FROM object
    WHERE kind = :kind AND (tenant, name) > (:after_tenant, :after_name)
    {{conditions}}
    ORDER BY tenant, name LIMIT :limit
"""
_OF_TENANT = "AND tenant = :tenant"
_ADMITTING = "AND (admits IS NULL OR :admitting = ANY (admits))"
_HAS = "AND selectable @> CAST(:has AS text[])"
_LACKS = "AND NOT selectable && CAST(:lacks AS text[])"


def page_statement(selection: Selection) -> TextClause:
    """Returns the list statement for this selection, with only the conditions it needs."""
    conditions = [
        sql
        for wanted, sql in (
            (selection.tenant, _OF_TENANT),
            (selection.admitting, _ADMITTING),
            (selection.has, _HAS),
            (selection.lacks, _LACKS),
        )
        if wanted
    ]
    return statement("page_of_objects", _PAGE.format(conditions=" ".join(conditions)))


INSERT = statement(
    "insert_objects",
    """
    INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version,
                        admits, selectable, created_at, updated_at)
    SELECT uid, kind, tenant, name, labels, spec, status, generation, resource_version,
           admits, selectable, created_at, updated_at
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (
        uid uuid, kind text, tenant text, name text, labels jsonb, spec jsonb, status jsonb,
        generation bigint, resource_version bigint, admits text[], selectable text[],
        created_at timestamptz, updated_at timestamptz)
    """,
)
UPDATE = statement(
    "update_objects",
    """
    UPDATE object SET labels = r.labels, spec = r.spec, status = r.status, generation = r.generation,
        resource_version = r.resource_version, admits = r.admits, selectable = r.selectable,
        updated_at = r.updated_at
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (
        uid uuid, labels jsonb, spec jsonb, status jsonb, generation bigint, resource_version bigint,
        admits text[], selectable text[], updated_at timestamptz)
    WHERE object.uid = r.uid
    """,
)
UPDATE_STATUS = statement(
    "update_object_statuses",
    """
    UPDATE object SET status = r.status, resource_version = r.resource_version, admits = r.admits,
        updated_at = r.updated_at
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (
        uid uuid, status jsonb, resource_version bigint, admits text[], updated_at timestamptz)
    WHERE object.uid = r.uid
    """,
)
COUNT_OF_TENANTS = statement(
    "count_objects_of_tenants",
    """
    SELECT tenant, count(*) AS total FROM object
    WHERE kind IN ('Service', 'Job') AND tenant = ANY (CAST(:tenants AS text[])) GROUP BY tenant
    """,
)
DELETE = statement("delete_objects", "DELETE FROM object WHERE uid = ANY (CAST(:uids AS uuid[]))")
OF_MODELS = statement(
    "objects_of_models",
    f"""
    SELECT {COLUMNS} FROM object
    WHERE kind = :kind AND uid IN (
        SELECT referrer FROM reference
        WHERE kind = 'Model' AND tenant = '' AND name = ANY (CAST(:models AS text[])))
    """,
)
CAPPED_NODES = statement(
    "nodes_with_caps_of_gpu_types",
    f"""
    SELECT {COLUMNS} FROM object
    WHERE kind = 'Node' AND spec ? 'capW' AND uid IN (
        SELECT referrer FROM reference
        WHERE kind = 'GpuType' AND tenant = '' AND name = ANY (CAST(:gpu_types AS text[])))
    ORDER BY name
    """,
)


def _read_row(row: SqlRow) -> StoredObject:
    uid, kind, *rest = row
    return StoredObject(uid, Kind(kind), *rest)


def get(connection: Connection, key: Key) -> StoredObject | None:
    row = connection.execute(GET, {"kind": key.kind, "tenant": key.tenant, "name": key.name}).one_or_none()
    return _read_row(row) if row else None


def get_many(connection: Connection, keys: Iterable[Key]) -> dict[Key, StoredObject]:
    """Returns the objects of `keys` that exist."""
    wanted = list(dict.fromkeys(keys))
    if not wanted:
        return {}
    rows = connection.execute(
        GET_MANY,
        {
            "kinds": [str(key.kind) for key in wanted],
            "tenants": [key.tenant for key in wanted],
            "names": [key.name for key in wanted],
        },
    )
    return {stored.key: stored for stored in map(_read_row, rows)}


def page(connection: Connection, selection: Selection, after: tuple[str, str], limit: int) -> list[StoredObject]:
    """Returns up to `limit` objects after (tenant, name), in that order."""
    parameters = {
        "kind": selection.kind,
        "tenant": selection.tenant,
        "admitting": selection.admitting,
        "has": list(selection.has),
        "lacks": list(selection.lacks),
        "after_tenant": after[0],
        "after_name": after[1],
        "limit": limit,
    }
    sql = page_statement(selection)
    return [_read_row(row) for row in connection.execute(sql, {name: parameters[name] for name in sql._bindparams})]


def names(connection: Connection, kind: Kind, admitting: str) -> list[str]:
    """Returns the names of a cluster-wide kind that the tenant `admitting` (empty: any) may read."""
    return list(connection.scalars(NAMES, {"kind": kind, "admitting": admitting}))


def read_objects_of_models(connection: Connection, kind: Kind, models: Iterable[str]) -> list[StoredObject]:
    """Returns the services, or the profiles, that refer to one of the models."""
    return [_read_row(row) for row in connection.execute(OF_MODELS, {"kind": kind, "models": sorted(models)})]


def read_capped_nodes(connection: Connection, gpu_types: Sequence[str]) -> list[StoredObject]:
    """Returns the nodes of these GPU types that state capW."""
    return [_read_row(row) for row in connection.execute(CAPPED_NODES, {"gpu_types": list(gpu_types)})]


def count_of_tenants(connection: Connection, tenants: Sequence[str]) -> dict[str, int]:
    """Returns by tenant how many services and jobs it has."""
    return {row.tenant: row.total for row in connection.execute(COUNT_OF_TENANTS, {"tenants": list(tenants)})}


def insert(connection: Connection, objects: Sequence[StoredObject]) -> None:
    _execute_rows(connection, INSERT, objects)


def update(connection: Connection, objects: Sequence[StoredObject]) -> None:
    _execute_rows(connection, UPDATE, objects)


def update_status(connection: Connection, objects: Sequence[StoredObject]) -> None:
    """Writes status and visibility only: the spec, and with it the generation, stay."""
    _execute_rows(connection, UPDATE_STATUS, objects)


def delete(connection: Connection, objects: Sequence[StoredObject]) -> None:
    if objects:
        connection.execute(DELETE, {"uids": [str(stored.uid) for stored in objects]})


def _execute_rows(connection: Connection, sql: TextClause, objects: Sequence[StoredObject]) -> None:
    if objects:
        connection.execute(sql, {"rows": msgspec.json.encode(objects).decode()})
