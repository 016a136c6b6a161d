"""Bearer tokens: made, parsed from a header, and checked against their hash, with a cache that revocation clears."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from app.access import Principal, Scope
from app.problem import HttpProblem
from app.store.access import rotation, tokens
from app.store.access.tokens import TokenRow
from app.store.database.database import Database, Unavailable
from app.store.world import audit
from app.store.world.objects import rfc3339

log = logging.getLogger(__name__)

PREFIX = "gw"
JOIN_PREFIX = "gwj"
FORM = re.compile(r"(gw[jcl]?)_([a-z0-9]{12})_([A-Za-z0-9_-]{43})")
CACHE_SIZE = 20_000
CACHE_SECONDS = 30.0  # after so long a token is read again, even without a notification
UNAUTHORIZED = {"WWW-Authenticate": 'Bearer realm="gpuwright"'}
ALARM_SECONDS = 60.0  # between alarms of one token
MOST_ALARMED = 10_000
ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token, in the form in which it is shown once."""

    id: str
    text: str
    secret_hash: bytes


def new(prefix: str = PREFIX, token_id: str = "") -> NewToken:
    """Returns a new token: a public id and 256 bits of secret, so that a plain SHA-256 stores it safely."""
    token_id = token_id or "".join(secrets.choice(ALPHABET) for _ in range(12))
    secret = secrets.token_urlsafe(32)
    return NewToken(token_id, f"{prefix}_{token_id}_{secret}", hash_secret(secret))


def hash_secret(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def parse(text: str, prefix: str = PREFIX) -> tuple[str, str] | None:
    """Returns (id, secret) of a well-formed token."""
    match = FORM.fullmatch(text)
    return (match[2], match[3]) if match and match[1] == prefix else None


def write_reuse_alarm(token_id: str, node: str, successor: str) -> audit.AuditEntry:
    """Returns the alarm about a token that was used again after its successor."""
    return audit.AuditEntry(
        request_id="authentication",
        principal=token_id,
        scope=Scope.NODE,
        principal_tenant="",
        verb="authenticate",
        outcome="alarm",
        kind="Token",
        name=token_id,
        detail=f"token {token_id} of node {node} was used again after its successor {successor} was used",
    )


def explain_revocation() -> HttpProblem:
    """Returns the answer to a request whose token ended while it waited."""
    return HttpProblem("unauthorized", "this token was revoked", headers=UNAUTHORIZED)


def explain_end(row: TokenRow) -> HttpProblem:
    """Returns the answer to the holder of a token that is no longer valid; only the holder learns what became of it."""
    if row.revoked_at is not None or row.expires_at is None:
        return explain_revocation()
    return HttpProblem("unauthorized", f"this token expired at {rfc3339(row.expires_at)}", headers=UNAUTHORIZED)


class Authenticator:
    """Turns an Authorization header into a Principal. Safe to call from any thread."""

    def __init__(self, database: Database, alarmed: Callable[[], None] = lambda: None) -> None:
        self._database = database
        self._count_alarm = alarmed
        self._cache: dict[bytes, tuple[Principal, float, int]] = {}  # principal, expiry, era of its check
        self._eras: dict[str, int] = {}  # by token id: the era in which it was last known to be live
        self._used: dict[str, datetime] = {}
        self._alarmed: dict[str, float] = {}
        self._lock = threading.Lock()
        self._era = 0  # counts revocations; a token checked in an earlier era is checked again

    def cached(self, authorization: str | None) -> Principal | None:
        """Returns the principal if it is known without the database."""
        if not authorization:
            return None
        entry = self._cache.get(hashlib.sha256(authorization.encode()).digest())
        if entry is None or entry[1] < time.monotonic() or entry[2] != self._era:
            return None
        principal = entry[0]
        now = datetime.now(UTC)
        if principal.expires_at is not None and principal.expires_at <= now:
            return None
        self._used[principal.id] = now
        return principal

    def principal(self, authorization: str | None) -> Principal:
        """Returns the principal of the header; 401 if there is none."""
        known = self.cached(authorization)
        if known is not None:
            return known
        if not authorization:
            raise HttpProblem("unauthorized", "send a token: Authorization: Bearer gw_...", headers=UNAUTHORIZED)
        scheme, _, text = authorization.partition(" ")
        parsed = parse(text.strip()) if scheme.lower() == "bearer" else None
        if parsed is None:
            raise HttpProblem("unauthorized", "this is not a gpuwright token", headers=UNAUTHORIZED)
        token_id, secret = parsed
        era = self._era
        row, live = self._database.read(lambda connection: tokens.find(connection, token_id))
        # An unknown id is compared too, so that it takes as long as a known id.
        expected = row.secret_hash if row else bytes(32)
        is_holder = hmac.compare_digest(expected, hash_secret(secret))
        if row is None or not is_holder or not live:
            if not live:
                self._suspect(token_id, secret)
            raise (
                explain_end(row)
                if row and is_holder
                else HttpProblem("unauthorized", "the server does not know this token", headers=UNAUTHORIZED)
            )
        if row.fresh:
            self._take_up(row)
        principal = Principal(row.id, Scope(row.scope), row.tenant, row.node, row.expires_at, row.gateway)
        digest = hashlib.sha256(authorization.encode()).digest()
        with self._lock:
            if len(self._cache) >= CACHE_SIZE:
                self._cache.clear()
                self._eras.clear()
            self._eras[principal.id] = era  # of before we read: a revocation since then makes it be read again
            self._cache[digest] = (principal, time.monotonic() + CACHE_SECONDS, era)
        self._used[principal.id] = datetime.now(UTC)
        return principal

    def _take_up(self, row: TokenRow) -> None:
        """Records the first use of a node's new token, after which the token before it ends soon."""
        ends = self._database.write(lambda connection: rotation.take_up(connection, row.replaces, row.id))
        if ends is None:
            raise explain_revocation()
        with self._lock:
            for digest, (principal, until, era) in list(self._cache.items()):
                if principal.id == row.replaces:
                    self._cache[digest] = (replace(principal, expires_at=ends), until, era)

    def _suspect(self, token_id: str, secret: str) -> None:
        """Handles a token that its node has replaced and that is used again: someone else has a copy of it."""
        spent = self._database.read(lambda connection: rotation.read_replaced_token(connection, token_id))
        if spent is None or not hmac.compare_digest(spent.secret_hash, hash_secret(secret)):
            return
        now = time.monotonic()
        if now < self._alarmed.get(token_id, 0.0):
            return
        if len(self._alarmed) >= MOST_ALARMED:
            self._alarmed.clear()
        self._alarmed[token_id] = now + ALARM_SECONDS
        self._count_alarm()
        alarm = write_reuse_alarm(spent.id, spent.node, spent.successor)
        self._database.write(lambda connection: audit.record(connection, [alarm]))

    def is_current(self, principal: Principal) -> bool:
        """Returns True if no token was revoked since this one was known to be live; needs no database."""
        return self._eras.get(principal.id) == self._era

    def live(self, principal: Principal) -> bool:
        """Returns True if the token is still valid; waiting requests check this when tokens change."""
        if self.is_current(principal):
            return True
        era = self._era
        if self._database.read(lambda connection: tokens.find_live(connection, principal.id)) is None:
            return False
        with self._lock:
            self._eras[principal.id] = era
        return True

    def refresh(self) -> None:
        """Reads once which of the cached tokens are still valid, and forgets the others.

        One query for a whole fleet, before its entries expire: otherwise a thousand agents would be looked up at the
        same moment.
        """
        with self._lock:
            era = self._era
            held = list(self._cache.items())
        ids = sorted({principal.id for _, (principal, _, _) in held})
        if not ids:
            return
        live = self._database.read(lambda connection: tokens.live_ids(connection, ids))
        until = time.monotonic() + CACHE_SECONDS
        with self._lock:
            for digest, (principal, _, _) in held:
                entry = self._cache.get(digest)
                if principal.id not in live:
                    self._cache.pop(digest, None)
                elif entry is not None:  # its end may have been set meanwhile
                    self._cache[digest] = (entry[0], until, max(era, entry[2]))
            self._eras |= {token_id: max(era, self._eras.get(token_id, era)) for token_id in live}

    def changed(self) -> None:
        """Handles a revocation, here or elsewhere: from now on every token is checked again before it is accepted."""
        with self._lock:
            self._era += 1
        try:
            self.refresh()
        except Unavailable:
            log.warning("tokens_asked_one_by_one", extra={"reason": "the database is busy or unreachable"})

    def forget(self, token_id: str = "", node: str = "") -> None:
        """Forgets this token, or all tokens of this node, which were revoked just now."""
        with self._lock:
            before, self._era = self._era, self._era + 1
            for digest, (principal, until, era) in list(self._cache.items()):
                if principal.id == token_id or (node and principal.node == node):
                    del self._cache[digest]
                elif era == before:
                    self._cache[digest] = (principal, until, self._era)
                    self._eras[principal.id] = self._era

    def used(self) -> list[tuple[str, datetime]]:
        """Returns the tokens used since the last call, with the times of use."""
        used, self._used = self._used, {}
        return list(used.items())
