"""What each gateway has counted: its newest word, one row a gateway, written once a second."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from agents.contract.gateways import GatewayCounts
from app.store.database.database import statement

ZIP_LEVEL = 1

# A word that comes late, or twice, is not kept.
KEEP = statement(
    "keep_counts",
    """
    WITH kept AS (
        INSERT INTO gateway_state AS known (gateway, received_at, sequence, endpoints, body)
        VALUES (:gateway, moment(), :sequence, :endpoints, :body)
        ON CONFLICT (gateway) DO UPDATE SET
            received_at = excluded.received_at, sequence = excluded.sequence, endpoints = excluded.endpoints,
            body = excluded.body
        WHERE known.sequence < excluded.sequence
        RETURNING sequence
    )
    SELECT coalesce((SELECT sequence FROM kept), (SELECT sequence FROM gateway_state WHERE gateway = :gateway))
    """,
)
NEWEST = statement(
    "newest_counts",
    """
    SELECT gateway, received_at, endpoints, body FROM gateway_state
    WHERE received_at > CAST(:since AS timestamptz) ORDER BY gateway
    """,
)
HEARD = statement(
    "gateways_heard",
    "SELECT gateway, CAST(extract(epoch FROM moment() - received_at) AS float8) AS seconds FROM gateway_state",
)
FORGET = statement(
    "forget_gateways", "DELETE FROM gateway_state WHERE received_at < moment() - CAST(:after AS interval)"
)

_decoder = msgspec.json.Decoder(GatewayCounts)


@dataclass(frozen=True, slots=True)
class GatewayTold:
    """A gateway's newest word, and when the database heard it."""

    gateway: str
    received_at: datetime
    counts: GatewayCounts


def keep(connection: Connection, gateway: str, told: GatewayCounts) -> int:
    """Store it unless a later word of this gateway was heard; the highest sequence there is then."""
    body = zlib.compress(msgspec.json.encode(told), ZIP_LEVEL)
    row = {"gateway": gateway, "sequence": told.sequence, "endpoints": told.endpoints, "body": body}
    kept = connection.execute(KEEP, row).scalar()
    return told.sequence if kept is None else int(kept)


def newest(connection: Connection, since: datetime | None = None) -> list[GatewayTold]:
    """The newest word of every gateway that has spoken since."""
    rows = connection.execute(NEWEST, {"since": since.isoformat() if since else "-infinity"})
    return [GatewayTold(row.gateway, row.received_at, _decoder.decode(zlib.decompress(row.body))) for row in rows]


def heard(connection: Connection) -> dict[str, float]:
    """For how many seconds each gateway has been silent."""
    return {row.gateway: row.seconds for row in connection.execute(HEARD)}


def forget(connection: Connection, after: timedelta = timedelta(days=7)) -> int:
    """Drop gateways that have been silent for so long."""
    return connection.execute(FORGET, {"after": after}).rowcount
