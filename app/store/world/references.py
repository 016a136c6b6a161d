"""References between objects, stored with them so that a delete can name every referrer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

import msgspec
from sqlalchemy import Connection

from app.manifests.model import Key, Kind
from app.store.database.database import statement


class Target(NamedTuple):
    """The target of a reference; `part` is a Model's variant, or empty."""

    key: Key
    part: str


CLEAR = statement("clear_references", "DELETE FROM reference WHERE referrer = ANY (CAST(:referrers AS uuid[]))")
INSERT = statement(
    "insert_references",
    """
    INSERT INTO reference (referrer, kind, tenant, name, part)
    SELECT DISTINCT referrer, kind, tenant, name, part
    FROM jsonb_to_recordset(CAST(:rows AS jsonb)) AS r (referrer uuid, kind text, tenant text, name text, part text)
    """,
)
REFERRERS = statement(
    "referrers_of_objects",
    """
    SELECT DISTINCT target.kind AS target_kind, target.name AS target_name, object.kind, object.tenant, object.name
    FROM unnest(CAST(:kinds AS text[]), CAST(:names AS text[])) AS target (kind, name)
    JOIN reference ON reference.kind = target.kind AND reference.tenant = '' AND reference.name = target.name
    JOIN object ON object.uid = reference.referrer
    WHERE NOT object.uid = ANY (CAST(:except AS uuid[]))
    ORDER BY object.kind, object.tenant, object.name LIMIT :limit
    """,
)

MEMBERS = statement(
    "objects_of_tenants",
    """
    SELECT kind, tenant, name FROM object
    WHERE kind IN ('Service', 'Job') AND tenant = ANY (CAST(:tenants AS text[]))
        AND NOT uid = ANY (CAST(:except AS uuid[]))
    ORDER BY kind, tenant, name LIMIT :limit
    """,
)
PARTS = statement(
    "referrers_of_model_parts",
    """
    SELECT reference.name AS model, reference.part, object.kind, object.tenant, object.name
    FROM reference JOIN object ON object.uid = reference.referrer
    WHERE reference.kind = 'Model' AND reference.tenant = '' AND reference.name = ANY (CAST(:models AS text[]))
    ORDER BY reference.name, object.kind, object.tenant, object.name, reference.part
    """,
)


def replace(connection: Connection, targets: dict[UUID, Sequence[Target]]) -> None:
    """Records that these objects refer to these targets and to nothing else."""
    if not targets:
        return
    connection.execute(CLEAR, {"referrers": [str(uid) for uid in targets]})
    rows = [
        {"referrer": uid, "kind": t.key.kind, "tenant": t.key.tenant, "name": t.key.name, "part": t.part}
        for uid, wanted in targets.items()
        for t in wanted
    ]
    if rows:
        connection.execute(INSERT, {"rows": msgspec.json.encode(rows).decode()})


def referrers(
    connection: Connection, keys: Iterable[Key], *, besides: Iterable[UUID], limit: int
) -> list[tuple[Key, Key]]:
    """Returns (target, referrer) for every object that refers to one of the cluster-wide `keys`."""
    wanted = list(keys)
    if not wanted:
        return []
    rows = connection.execute(
        REFERRERS,
        {
            "kinds": [str(key.kind) for key in wanted],
            "names": [key.name for key in wanted],
            "except": [str(uid) for uid in besides],
            "limit": limit,
        },
    )
    return [
        (Key(Kind(row.target_kind), "", row.target_name), Key(Kind(row.kind), row.tenant, row.name)) for row in rows
    ]


def members(
    connection: Connection, tenants: Sequence[str], *, besides: Iterable[UUID] = (), limit: int = 1000
) -> list[tuple[Key, Key]]:
    """Returns (tenant, service or job) for everything that belongs to one of the tenants."""
    if not tenants:
        return []
    rows = connection.execute(
        MEMBERS, {"tenants": list(tenants), "except": [str(uid) for uid in besides], "limit": limit}
    )
    return [(Key(Kind.TENANT, "", row.tenant), Key(Kind(row.kind), row.tenant, row.name)) for row in rows]


def parts(connection: Connection, models: Sequence[str]) -> list[tuple[Key, Key, str]]:
    """Returns (model, referrer, variant or empty) for every reference to one of the models."""
    rows = connection.execute(PARTS, {"models": list(models)})
    return [(Key(Kind.MODEL, "", row.model), Key(Kind(row.kind), row.tenant, row.name), row.part) for row in rows]
