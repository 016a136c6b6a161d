"""Which nodes have time to account for, what is known of it, and the lines that are written; money's only door."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from sqlalchemy import Connection

from app.store.database.database import SqlRow, read_row, statement

# A slice is final when its node will report nothing more about it: the node has reported after its end, and reports
# that take a minute or two have arrived; or the node has been silent for an hour since.
SETTLED = "3 minutes"
GRACE = "1 hour"
MONTHS = 13  # nothing before that is accounted for again

_MICROSECONDS = "CAST(extract(epoch FROM {0}) * 1000000 AS bigint)"


def _us(column: str) -> str:
    return _MICROSECONDS.format(column)


# A node with usage that came late, or that is back after a gap, is accounted for again from then on. A quarantined node
# waits for its next attempt.
_DUE = """
    FROM ledger_node LEFT JOIN node_state USING (node) LEFT JOIN ledger_quarantine USING (node)
    CROSS JOIN LATERAL (SELECT greatest(
        CASE WHEN received_at IS NOT NULL THEN date_bin(
            '15 minutes', least((SELECT moment()) - CAST(:settled AS interval), received_at), '1970-01-01Z') END,
        date_bin('15 minutes', (SELECT moment()) - CAST(:grace AS interval), '1970-01-01Z')) AS reach) AS final
    WHERE (reach > allocated_until AND (owned_until IS NULL OR owned_until > allocated_until)
           OR gap_since < received_at
           OR EXISTS (SELECT FROM usage_news WHERE usage_news.node = ledger_node.node)
           OR retry_at IS NOT NULL)
      AND (retry_at IS NULL OR retry_at <= (SELECT moment()))
"""
DUE = statement("nodes_to_account_for", f"SELECT node {_DUE} ORDER BY allocated_until, node")
HOLD = statement(
    "hold_account",
    f"""
    SELECT node, {_us("allocated_until")} AS allocated_until, {_us("gap_since")} AS gap_since,
           {_us("least(reach, allocated_until + CAST(:slices AS integer) * interval '15 minutes')")} AS reach,
           coalesce({_us("received_at")}, 0) AS reported_at,
           {_us("(SELECT moment()) - CAST(:horizon AS interval)")} AS horizon, retry_at IS NOT NULL AS is_quarantined
    {_DUE} AND node = :node
    FOR UPDATE OF ledger_node SKIP LOCKED
    """,
)
NEWS = statement(
    "take_usage_news",
    f"""
    WITH taken AS (DELETE FROM usage_news WHERE node = :node RETURNING since)
    SELECT {_us("min(since)")} AS since FROM taken
    """,
)
FIRST_DUE = statement(
    "first_moment_to_account_for",
    """
    SELECT least((SELECT min(allocated_until) FROM ledger_node
                  WHERE owned_until IS NULL OR owned_until > allocated_until),
                 (SELECT min(gap_since) FROM ledger_node), (SELECT min(since) FROM usage_news)) AS first,
           moment() AS now
    """,
)
WRITTEN = statement(
    "written_allocations",
    f"""
    SELECT {_us("slice")} AS slice, gpu, owned, instance, tenant, service, job, model, kind, evidence,
           CAST(sum(gpu_microseconds) AS bigint) AS gpu_microseconds, CAST(sum(nano) AS bigint) AS nano,
           CAST(sum(energy_mj) AS bigint) AS energy_mj
    FROM allocation
    WHERE slice >= to_timestamp(CAST(:start AS bigint) / 1000000)
      AND slice < to_timestamp(CAST(:stop AS bigint) / 1000000) AND node = :node
    GROUP BY slice, gpu, owned, instance, tenant, service, job, model, kind, evidence
    """,
)
_KEYS = "node, gpu, owned, tenant, service, job, model, kind, evidence"


def _select_rolled_up(table: str, period: str) -> str:
    return f"""
        INSERT INTO {table} AS known ({period}, gpu_type, region, purchase, {_KEYS}, gpu_microseconds, nano, energy_mj)
        SELECT date_trunc('{period}', slice, 'UTC'), max(gpu_type), max(region), max(purchase), {_KEYS},
               sum(gpu_microseconds), sum(nano), sum(energy_mj)
        FROM line GROUP BY date_trunc('{period}', slice, 'UTC'), {_KEYS}
        ON CONFLICT ({period}, {_KEYS}) DO UPDATE SET
            gpu_microseconds = known.gpu_microseconds + excluded.gpu_microseconds,
            nano = known.nano + excluded.nano,
            energy_mj = CASE WHEN known.energy_mj IS NULL THEN excluded.energy_mj
                             ELSE known.energy_mj + coalesce(excluded.energy_mj, 0) END
    """


WRITE = statement(
    "write_allocations",
    f"""
    WITH line AS MATERIALIZED (
        SELECT to_timestamp(slice / 1000000) AS slice, {_KEYS}, gpu_type, region, purchase, instance,
               gpu_microseconds, nano, energy_mj
        FROM jsonb_to_recordset(CAST(:entries AS jsonb)) AS given (
            slice bigint, node text, gpu int, owned bigint, gpu_type text, region text, purchase text, tenant text,
            service text, job text, model text, instance text, kind text, evidence text, gpu_microseconds bigint,
            nano bigint, energy_mj bigint)
    ), entries AS (
        INSERT INTO allocation (slice, gpu_type, region, purchase, {_KEYS}, gpu_microseconds, nano, energy_mj,
                                instance, correction, written_at)
        SELECT slice, gpu_type, region, purchase, {_KEYS}, gpu_microseconds, nano, energy_mj, instance,
               :correction, (SELECT moment())
        FROM line
    ), hours AS ({_select_rolled_up("cost_hour", "hour")})
    {_select_rolled_up("cost_day", "day")}
    """,
)
ADVANCE = statement(
    "advance_account",
    """
    UPDATE ledger_node SET allocated_until = to_timestamp(CAST(:until AS bigint) / 1000000),
        gap_since = to_timestamp(CAST(:gap_since AS bigint) / 1000000)
                    + CAST(:gap_since AS bigint) % 1000000 * interval '1 microsecond'
    WHERE node = :node
    """,
)
LATER = statement(
    "look_again_later",
    "INSERT INTO usage_news (node, since) VALUES (:node, to_timestamp(CAST(:since AS bigint) / 1000000))",
)


class LedgerEntry(msgspec.Struct, gc=False):
    """One holder's part of one GPU in one slice; the slice in microseconds."""

    node: str
    gpu_type: str
    region: str
    purchase: str
    slice: int
    gpu: int
    owned: int
    instance: str
    tenant: str
    service: str
    job: str
    model: str
    kind: str
    evidence: str
    gpu_microseconds: int
    nano: int
    energy_mj: int | None


@dataclass(frozen=True, slots=True)
class OpenAccount:
    """A node with something to account for, held until the transaction ends. Moments in microseconds."""

    node: str
    allocated_until: int
    gap_since: int | None
    reach: int  # what is final
    reported_at: int  # 0: never
    horizon: int  # what lies before is not accounted for any more
    is_quarantined: bool


def due(connection: Connection) -> list[str]:
    """Returns the nodes with something to account for, the one that is furthest behind first."""
    return list(connection.execute(DUE, {"settled": SETTLED, "grace": GRACE}).scalars())


def hold(connection: Connection, node: str, slices: int) -> OpenAccount | None:
    """Returns the node's account with at most so many new slices, if any is due and no other replica holds it."""
    given = {"settled": SETTLED, "grace": GRACE, "horizon": f"{MONTHS} months", "slices": slices, "node": node}
    return read_row(OpenAccount, connection.execute(HOLD, given))


def take_news(connection: Connection, node: str) -> int | None:
    """Returns from when on usage was reported late. Of a held account only: what comes later is found the next time."""
    since: int | None = connection.execute(NEWS, {"node": node}).scalar()
    return since


def months_due(connection: Connection) -> list[datetime]:
    """Returns a day of each month that accounting may write to now."""
    first, now = connection.execute(FIRST_DUE).one()
    if first is None:
        return []
    number = max(first.year * 12 + first.month, now.year * 12 + now.month - MONTHS - 1) - 1
    return [
        now.replace(year=month // 12, month=month % 12 + 1, day=1)
        for month in range(number, now.year * 12 + now.month)
    ]  # fmt: skip


def read_written(connection: Connection, node: str, start: int, stop: int) -> list[SqlRow]:
    """Returns what was written of the node's slices so far, with its counter-entries."""
    return list(connection.execute(WRITTEN, {"node": node, "start": start, "stop": stop}))


def write(connection: Connection, entries: Sequence[LedgerEntry], *, correction: bool) -> None:
    """Writes entries, and the sums of hours and days with them."""
    if entries:
        connection.execute(WRITE, {"entries": msgspec.json.encode(entries).decode(), "correction": correction})


def advance(connection: Connection, node: str, until: int, gap_since: int | None) -> None:
    """Notes how far the node is accounted for, and from when on by presumption."""
    connection.execute(ADVANCE, {"node": node, "until": until, "gap_since": gap_since})


def look_again(connection: Connection, node: str, since: int) -> None:
    """Notes where the next transaction goes on to correct."""
    connection.execute(LATER, {"node": node, "since": since})
