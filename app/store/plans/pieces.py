"""Parts of snapshots and plans, compressed, each stored once under the hash of its content."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b

from sqlalchemy import Connection

from app.store.database.database import statement

ZIP_LEVEL = 1
HASH_BYTES = 16

PUT = statement(
    "put_pieces",
    """
    INSERT INTO piece (hash, body, kept_at)
    SELECT hash, body, moment() FROM unnest(CAST(:hashes AS bytea[]), CAST(:bodies AS bytea[])) AS new (hash, body)
    ORDER BY hash ON CONFLICT (hash) DO UPDATE SET kept_at = excluded.kept_at
    """,
)
GET = statement("get_pieces", "SELECT hash, body FROM piece WHERE hash = ANY(CAST(:hashes AS bytea[]))")
# An old piece counts only if it was there to be touched: it may be pruned at this moment.
KNOWN = statement(
    "pieces_known",
    """
    WITH touched AS (
        UPDATE piece SET kept_at = moment()
        WHERE hash = ANY(CAST(:hashes AS bytea[])) AND kept_at < moment() - interval '30 minutes' RETURNING hash
    )
    SELECT hash FROM piece WHERE hash = ANY(CAST(:hashes AS bytea[])) AND kept_at >= moment() - interval '30 minutes'
    UNION ALL SELECT hash FROM touched
    """,
)
# A piece is kept for an hour even if nothing refers to it: a decision that refers to it may be about to be written.
PRUNE = statement(
    "prune_pieces",
    """
    DELETE FROM piece WHERE kept_at < moment() - interval '1 hour' AND hash NOT IN (
        SELECT body FROM plan UNION ALL SELECT desired FROM plan
        UNION ALL SELECT decode(jsonb_array_elements_text(snapshot), 'hex') FROM plan
        UNION ALL SELECT decode(jsonb_array_elements_text(snapshot), 'hex') FROM cycle)
    """,
)


def content_hash(body: bytes) -> bytes:
    return blake2b(body, digest_size=HASH_BYTES).digest()


def put(connection: Connection, bodies: Sequence[bytes]) -> list[bytes]:
    """Stores the pieces that are not stored yet; returns the hash of each."""
    hashes = [content_hash(body) for body in bodies]
    held = {bytes(row.hash) for row in connection.execute(KNOWN, {"hashes": hashes})}
    new = {digest: body for digest, body in zip(hashes, bodies, strict=True) if digest not in held}
    if new:
        packed = [zlib.compress(body, ZIP_LEVEL) for body in new.values()]
        connection.execute(PUT, {"hashes": list(new), "bodies": packed})
    return hashes


def get(connection: Connection, hashes: Iterable[bytes]) -> Mapping[bytes, bytes]:
    """Returns the pieces with these hashes; pruned pieces are missing."""
    rows = connection.execute(GET, {"hashes": list(hashes)})
    return {bytes(row.hash): zlib.decompress(row.body) for row in rows}


def prune(connection: Connection) -> int:
    """Deletes pieces that nothing refers to any more."""
    return connection.execute(PRUNE).rowcount
