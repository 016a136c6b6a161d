"""A person's token: the rights of their first group that has some, for some hours."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal, Protocol

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from app import tokens as secrets
from app.access import Noun, Principal, Scope
from app.http.buckets import Buckets
from app.people.claims import Person
from app.problem import HttpProblem
from app.settings import GroupRight, Settings
from app.store.access import tokens
from app.store.access.tokens import TokenDraft, TokenRow
from app.store.database.database import Database
from app.store.world import audit
from app.tokens import NewToken
from app.world.write import Actor

LABEL_END = " · signed in"  # the API accepts ASCII labels only, so nobody else can make a token that says so
MOST_OF_A_PERSON = 16  # live tokens of one way in; one more ends the oldest
SIGN_INS = Buckets(60 / 3600, 20.0)  # by person
AUDITED_REFUSALS = Buckets(0.1, 20.0)  # by person, and of all together: the audit is kept for a year
ALL_REFUSALS = Buckets(0.2, 100.0)

Way = Literal["console", "command-line"]


class ServerParts(Protocol):
    """What a sign-in needs of the server."""

    @property
    def settings(self) -> Settings: ...
    @property
    def database(self) -> Database: ...


@dataclass(frozen=True, slots=True)
class GivenToken:
    """A person's new token, with the text that is shown once."""

    row: TokenRow
    text: str


def find_right(rights: Sequence[GroupRight], groups: Sequence[str], tenant: str = "") -> GroupRight | None:
    """Returns the first right of the person's groups; with a tenant, the first for that tenant alone."""
    held = (right for right in rights if right.group in groups)
    return next((right for right in held if not tenant or right.tenant == tenant), None)


def name_account(person: Person) -> str:
    """Returns a name for the person that stays, under which tokens are counted and the audit is read."""
    digest = hashlib.sha256(f"{person.issuer}\0{person.subject}".encode()).hexdigest()
    return f"person:{digest[:16]}"


def sign_in(parts: ServerParts, person: Person, request_id: str, way: Way, tenant: str = "") -> GivenToken:
    """Gives the person a token for what the provider has signed, which counts once: its mark names the token."""
    account = name_account(person)
    if wait := SIGN_INS.take(account, time.monotonic()):
        raise HttpProblem(
            "rate-limited", f"{person.name} has signed in too often", headers={"Retry-After": str(ceil(wait))}
        )
    number = int.from_bytes(person.mark)
    token_id = "".join(secrets.ALPHABET[number // 36**place % 36] for place in range(12))
    new = secrets.new(token_id=token_id)
    try:
        row = parts.database.write(
            lambda connection: _give_token(connection, parts.settings, person, new, request_id, way, tenant)
        )
    except IntegrityError:
        raise HttpProblem("unauthorized", "this ID token has been used; sign in again") from None
    if isinstance(row, HttpProblem):
        raise row
    return GivenToken(row, new.text)


def _give_token(
    connection: Connection, settings: Settings, person: Person, new: NewToken, request_id: str, way: Way, tenant: str
) -> TokenRow | HttpProblem:
    """Stores the token. A refusal is returned and not raised, so that its audit entry is committed."""
    account, right = name_account(person), find_right(settings.group_rights(), person.groups, tenant)
    if right is None:
        wanted = f" for tenant {tenant}" if tenant else ""
        detail = f"{person.name} is known, but is in no group that may use this server{wanted}"
        now = time.monotonic()
        if not AUDITED_REFUSALS.take(account, now) and not ALL_REFUSALS.take("", now):
            nobody = Actor(Principal(account, Scope.VIEWER), request_id)
            entry = nobody.entry("sign in", "Session", name=account, outcome="refused", detail=detail)
            audit.record(connection, [entry])
        return HttpProblem("forbidden", f"{detail}; its administrator sets GPUWRIGHT_OIDC_GROUPS")
    maker = f"{account}/{way}"
    who = Actor(Principal(new.id, Scope(right.scope), right.tenant), request_id)
    tokens.lock_maker(connection, maker)
    for old in tokens.list_live_of(connection, maker)[MOST_OF_A_PERSON - 1 :]:
        tokens.revoke(connection, old)
        audit.record(connection, [who.entry("revoke", Noun.TOKEN, name=old, detail=f"{account} has newer ones")])
    row = tokens.insert(
        connection,
        TokenDraft(
            id=new.id, secret_hash=new.secret_hash, scope=right.scope, tenant=right.tenant,
            label=f"{person.name}{LABEL_END}", created_by=maker, expires_in_seconds=settings.oidc_hours * 3600,
        ),
    )  # fmt: skip
    detail = f"{account}, of group {right.group!r}, named {person.name!r}"  # a name may say anything, so it comes last
    audit.record(connection, [who.entry("sign in", "Session", name=new.id, detail=detail)])
    return row
