"""Sessions of the console: opened with a token or a one-time link, kept in a cookie, with the rights of the token."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass

from app import tokens
from app.access import Principal, Scope
from app.http.buckets import Buckets, too_many
from app.problem import HttpProblem
from app.store.access import sessions
from app.store.access.sessions import SessionRow
from app.store.database.database import Database
from app.tokens import Authenticator, NewToken

COOKIE_PREFIX = "gwc"
LINK_PREFIX = "gwl"
FORM_PREFIX = "gwf"
SESSION_SECONDS = 12 * 3600
LINK_SECONDS = 60


@dataclass(frozen=True, slots=True)
class Opened:
    """A new session: the content of its cookie, and its principal."""

    cookie: str
    principal: Principal


class Sessions:
    """Turns cookies into principals, without a cache: the end of a token ends its sessions at once."""

    def __init__(self, database: Database, authenticator: Authenticator, sign_ins: Buckets) -> None:
        """`sign_ins` limits how often each token opens a session: every one leaves a row in the audit."""
        self._database = database
        self._authenticator = authenticator
        self._sign_ins = sign_ins

    def principal(self, cookie: str | None) -> Principal:
        """Returns the principal of the session; 401 if there is no such session."""
        parsed = tokens.parse(cookie or "", COOKIE_PREFIX)
        if parsed is None:
            raise HttpProblem("unauthorized", "this is not a valid session")
        session_id, secret = parsed
        row = self._database.read(lambda connection: sessions.find_live(connection, session_id))
        expected = row.secret_hash if row else bytes(32)
        if not hmac.compare_digest(expected, hash_part(COOKIE_PREFIX, secret)) or row is None:
            raise HttpProblem("unauthorized", "this session has ended")
        return _principal(row, secret)

    def open(self, token: str) -> Opened:
        """Opens a session for the holder of this token."""
        who = self._authenticator.principal(f"Bearer {token}")
        wait = self._sign_ins.take(who.id, time.monotonic())
        if wait:
            raise too_many("sessions opened with this token", wait, self._sign_ins)
        new = fresh(COOKIE_PREFIX)
        row = self._database.write(
            lambda connection: sessions.open_for(connection, who.id, new.id, new.secret_hash, SESSION_SECONDS)
        )
        if row is None:
            raise HttpProblem("forbidden", f"a token of scope {who.role} may not read the console")
        return Opened(new.text, _principal(row))

    def redeem(self, link: str) -> Opened:
        """Opens a session for a link, which can be used once and within a minute."""
        parsed = tokens.parse(link, LINK_PREFIX)
        new = fresh(COOKIE_PREFIX)
        row = None
        if parsed is not None:
            link_id, secret = parsed
            link_hash = hash_part(LINK_PREFIX, secret)
            row = self._database.write(
                lambda c: sessions.redeem(c, link_id, link_hash, new.id, new.secret_hash, SESSION_SECONDS)
            )
        if row is None:
            raise HttpProblem("unauthorized", "this link was already used or is older than a minute")
        return Opened(new.text, _principal(row))

    def close(self, who: Principal) -> None:
        self._database.write(lambda connection: sessions.close(connection, who.id))


def link_for(database: Database, token_id: str) -> str:
    """Returns the secret of a link for the holder of this token; empty if the token has ended."""
    new = fresh(LINK_PREFIX)
    made = database.write(
        lambda connection: sessions.store_link(connection, token_id, new.id, new.secret_hash, LINK_SECONDS)
    )
    return new.text if made else ""


def fresh(prefix: str) -> NewToken:
    """Returns a new secret like a token's, hashed differently so that it is of no use as a token."""
    new = tokens.new(prefix)
    parsed = tokens.parse(new.text, prefix)
    assert parsed is not None
    return NewToken(new.id, new.text, hash_part(prefix, parsed[1]))


def hash_part(prefix: str, secret: str) -> bytes:
    return tokens.hash_secret(f"{prefix}\0{secret}")


def _principal(row: SessionRow, secret: str = "") -> Principal:
    key = hash_part(FORM_PREFIX, secret) if secret else b""
    return Principal(
        row.id, Scope(row.scope), tenant=row.tenant, expires_at=row.expires_at, opened_by=row.parent, form_key=key
    )
