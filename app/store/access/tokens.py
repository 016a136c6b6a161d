"""Tokens as rows: the hashed secret, the scope and the expiry of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import Connection

from app.store.access import rotation
from app.store.database import versions
from app.store.database.database import statement

COLUMNS = (
    "id, secret_hash, scope, tenant, node, label, created_by, created_at, expires_at, revoked_at, last_used_at, "
    "replaces, taken_up_at, gateway"
)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A token without its secret, which only its holder knows."""

    id: str
    secret_hash: bytes
    scope: str
    tenant: str
    node: str
    label: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    replaces: str = ""  # the node's token that this one replaces
    taken_up_at: datetime | None = None  # when it was first used; the replaced token ends soon after
    gateway: str = ""

    @property
    def fresh(self) -> bool:
        """True until its first use, which ends the token that it replaces."""
        return bool(self.replaces) and self.taken_up_at is None


FIND = statement(
    "find_token",
    f"""
    SELECT revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now()), {COLUMNS} FROM token WHERE id = :id
    """,
)
LIVE_AMONG = statement(
    "live_tokens_among",
    """
    SELECT id FROM token
    WHERE id = ANY(CAST(:ids AS text[])) AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
    """,
)
LIVE_OF = statement(
    "live_tokens_of",
    """
    SELECT id FROM token
    WHERE created_by = :created_by AND created_by LIKE 'person:%'
        AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > now())
    ORDER BY created_at DESC, id
    """,
)
LOCK_MAKER = statement("lock_maker_of_tokens", "SELECT pg_advisory_xact_lock(hashtextextended(:maker, 35))")
LABELS = statement("labels_of_tokens", "SELECT id, label FROM token WHERE id = ANY(CAST(:ids AS text[]))")
# What a person's token makes is the person's, as is what that makes: their sign-ins are forgotten earlier.
MAKER = statement(
    "maker_of_tokens",
    """
    SELECT split_part(created_by, '/', 1) || '/token' FROM token WHERE id = :id AND created_by LIKE 'person:%'
    """,
)
INSERT = statement(
    "insert_token",
    f"""
    INSERT INTO token (id, secret_hash, scope, tenant, node, gateway, label, created_by, expires_at)
    VALUES (:id, :secret_hash, :scope, :tenant, :node, :gateway, :label, :created_by,
            now() + make_interval(secs => CAST(:expires_in_seconds AS double precision)))
    RETURNING {COLUMNS}
    """,
)
PAGE = statement("page_of_tokens", f"SELECT {COLUMNS} FROM token WHERE id > :after ORDER BY id LIMIT :limit")
REVOKE = statement(
    "revoke_token",
    f"UPDATE token SET revoked_at = coalesce(revoked_at, now()) WHERE id = :id RETURNING {COLUMNS}",
)
NODE_HAS_TOKEN = statement(
    "node_has_live_token",
    """
    SELECT EXISTS (SELECT FROM token WHERE node = :node AND node <> '' AND revoked_at IS NULL)
    """,
)
REVOKE_OF_NODES = statement(
    "revoke_tokens_of_nodes",
    """
    UPDATE token SET revoked_at = now()
    WHERE node = ANY (CAST(:nodes AS text[])) AND node <> '' AND revoked_at IS NULL
    """,
)
# A node's expired token stays: it says that the node has joined, and that no other may take its name.
FORGET = statement(
    "forget_tokens",
    """
    DELETE FROM token WHERE id IN (
        SELECT id FROM token
        WHERE least(revoked_at, CASE WHEN scope <> 'node' THEN expires_at END) < now() - interval '90 days'
        ORDER BY least(revoked_at, CASE WHEN scope <> 'node' THEN expires_at END) LIMIT :limit)
    """,
)
TOUCH = statement(
    "touch_tokens",
    """
    UPDATE token SET last_used_at = greatest(last_used_at, used.at)
    FROM unnest(CAST(:ids AS text[]), CAST(:times AS timestamptz[])) AS used (id, at)
    WHERE token.id = used.id
    """,
)


def find(connection: Connection, token_id: str) -> tuple[TokenRow | None, bool]:
    """Returns the token, and True if it is neither revoked nor expired by the database's clock."""
    found = connection.execute(FIND, {"id": token_id}).one_or_none()
    if found is None:
        return None, False
    live, *row = found
    return TokenRow(*row), live


def find_live(connection: Connection, token_id: str) -> TokenRow | None:
    row, live = find(connection, token_id)
    return row if live else None


def live_ids(connection: Connection, ids: Sequence[str]) -> set[str]:
    """Returns the live tokens among `ids`: one query for all waiting requests."""
    return set(connection.execute(LIVE_AMONG, {"ids": list(ids)}).scalars())


def lock_maker(connection: Connection, maker: str) -> None:
    """Makes others who give tokens to the same person wait until this transaction ends, so that all are counted."""
    connection.execute(LOCK_MAKER, {"maker": maker})


def list_live_of(connection: Connection, created_by: str) -> list[str]:
    """Returns the live tokens of a person who signed in, the newest first."""
    return list(connection.execute(LIVE_OF, {"created_by": created_by}).scalars())


def name_maker(connection: Connection, token_id: str) -> str:
    """Returns whom a token that this one makes is from: the person whose it is, else the token itself."""
    return connection.execute(MAKER, {"id": token_id}).scalar() or token_id


def labels(connection: Connection, ids: Collection[str]) -> dict[str, str]:
    """Returns the labels of the tokens that are still stored, by id."""
    return {row.id: row.label for row in connection.execute(LABELS, {"ids": list(ids)})}


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenDraft:
    """A token about to be written, with the hash of its secret."""

    id: str
    secret_hash: bytes
    scope: str
    tenant: str = ""
    node: str = ""
    gateway: str = ""
    label: str = ""
    created_by: str
    expires_in_seconds: float | None = None


def insert(connection: Connection, token: TokenDraft) -> TokenRow:
    return TokenRow(*connection.execute(INSERT, asdict(token)).one())


def page(connection: Connection, after: str, limit: int) -> list[TokenRow]:
    return [TokenRow(*row) for row in connection.execute(PAGE, {"after": after, "limit": limit})]


def revoke(connection: Connection, token_id: str) -> TokenRow | None:
    """Ends a token and its unused successors, and notifies every replica."""
    version = versions.lock(connection, "token")
    rotation.drop_unused(connection, token_id)
    row = connection.execute(REVOKE, {"id": token_id}).one_or_none()
    versions.advance(connection, "token", version + 1)
    return TokenRow(*row) if row else None


def revoke_of_nodes(connection: Connection, nodes: Sequence[str]) -> None:
    """Ends every token of these nodes and notifies every replica."""
    if nodes:
        version = versions.lock(connection, "token")
        connection.execute(REVOKE_OF_NODES, {"nodes": list(nodes)})
        versions.advance(connection, "token", version + 1)


def node_has_token(connection: Connection, node: str) -> bool:
    """Returns True if the node has joined and was not removed since; an expired token counts: the node may be away."""
    return bool(connection.scalar(NODE_HAS_TOKEN, {"node": node}))


def touch(connection: Connection, used: Sequence[tuple[str, datetime]]) -> None:
    """Records when tokens were last used."""
    if used:
        ordered = sorted(used)  # the same order everywhere, so that two replicas cannot deadlock
        connection.execute(TOUCH, {"ids": [i for i, _ in ordered], "times": [t for _, t in ordered]})


def forget(connection: Connection, limit: int) -> int:
    """Deletes up to `limit` tokens that ended long ago; returns how many."""
    return connection.execute(FORGET, {"limit": limit}).rowcount
