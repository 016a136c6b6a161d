"""The newest counters of each gateway: one row a gateway, written once a second."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import Connection

from agents.contract.gateways import GatewayCounts
from app.store.database.database import statement

ZIP_LEVEL = 1

# Counters that arrive late or twice are dropped. A gateway numbers its messages from 1, one a second: a number above
# the seconds since 1970 is refused, and counts for nothing where it is stored.
KEEP = statement(
    "keep_counts",
    """
    WITH highest AS MATERIALIZED (
        SELECT CAST(extract(epoch FROM moment()) AS bigint) + 86400 AS sequence
    ), kept AS (
        INSERT INTO gateway_state AS known (gateway, received_at, sequence, endpoints, body)
        SELECT :gateway, moment(), CAST(:sequence AS bigint), :endpoints, :body
        FROM highest WHERE CAST(:sequence AS bigint) <= highest.sequence
        ON CONFLICT (gateway) DO UPDATE SET
            received_at = excluded.received_at, sequence = excluded.sequence, endpoints = excluded.endpoints,
            body = excluded.body
        WHERE known.sequence < excluded.sequence OR known.sequence > (SELECT sequence FROM highest)
        RETURNING sequence
    )
    SELECT coalesce((SELECT sequence FROM kept), (SELECT sequence FROM gateway_state WHERE gateway = :gateway))
    """,
)
IN_FORCE = statement(
    "endpoints_in_force",
    "SELECT gateway, received_at, endpoints FROM gateway_state",
)
FORGET = statement(
    "forget_gateways", "DELETE FROM gateway_state WHERE received_at < moment() - CAST(:after AS interval)"
)


def keep(connection: Connection, gateway: str, counts: GatewayCounts) -> int:
    """Stores counters unless newer ones of this gateway are stored; returns the highest sequence stored."""
    body = zlib.compress(msgspec.json.encode(counts), ZIP_LEVEL)
    row = {"gateway": gateway, "sequence": counts.sequence, "endpoints": counts.endpoints, "body": body}
    return int(connection.execute(KEEP, row).scalar() or 0)


@dataclass(frozen=True, slots=True)
class InForce:
    """The version of the endpoints that a gateway has in force, by its last report."""

    gateway: str
    received_at: datetime
    endpoints: int


def read_in_force(connection: Connection) -> list[InForce]:
    """Returns what each gateway that is not forgotten has in force."""
    return [InForce(*row) for row in connection.execute(IN_FORCE)]


def forget(connection: Connection, after: timedelta = timedelta(days=7)) -> int:
    """Deletes gateways that have been silent for so long; returns how many."""
    return connection.execute(FORGET, {"after": after}).rowcount
