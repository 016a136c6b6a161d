"""A person's token: the rights of their first group that has some, for some hours."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from sqlalchemy import Connection

from app.access import Principal, Scope
from app.people.claims import Person
from app.problem import HttpProblem
from app.settings import GroupRight, Settings
from app.store.access import tokens
from app.store.access.tokens import TokenDraft, TokenRow
from app.store.world import audit
from app.tokens import NewToken
from app.world.write import Actor

LABEL_END = " · signed in"  # the API accepts ASCII labels only, so nobody else can make a token that says so
MOST_OF_A_PERSON = 16  # live tokens; one more ends the oldest


def find_right(rights: Sequence[GroupRight], groups: Sequence[str], tenant: str = "") -> GroupRight | None:
    """Returns the first right of the person's groups; with a tenant, the first for that tenant alone."""
    held = (right for right in rights if right.group in groups)
    return next((right for right in held if not tenant or right.tenant == tenant), None)


def name_account(person: Person) -> str:
    """Returns a name for the person that stays, under which tokens are counted and the audit is read."""
    digest = hashlib.sha256(f"{person.issuer}\0{person.subject}".encode()).hexdigest()
    return f"person:{digest[:16]}"


def give_token(
    connection: Connection, settings: Settings, person: Person, new: NewToken, request_id: str, tenant: str = ""
) -> TokenRow | HttpProblem:
    """Stores the person's new token. A refusal is returned and not raised, so that its audit entry is committed."""
    account, right = name_account(person), find_right(settings.group_rights(), person.groups, tenant)
    if right is None:
        wanted = f" for tenant {tenant}" if tenant else ""
        detail = f"{person.name} is known, but is in no group that may use this server{wanted}"
        nobody = Actor(Principal(account, Scope.VIEWER), request_id)
        audit.record(connection, [nobody.entry("sign in", "Session", name=account, outcome="refused", detail=detail)])
        return HttpProblem("forbidden", f"{detail}; its administrator sets GPUWRIGHT_OIDC_GROUPS")
    for old in tokens.list_live_of(connection, account)[MOST_OF_A_PERSON - 1 :]:
        tokens.revoke(connection, old)
    row = tokens.insert(
        connection,
        TokenDraft(
            id=new.id, secret_hash=new.secret_hash, scope=right.scope, tenant=right.tenant,
            label=f"{person.name}{LABEL_END}", created_by=account, expires_in_seconds=settings.oidc_hours * 3600,
        ),
    )  # fmt: skip
    who = Actor(Principal(new.id, Scope(right.scope), right.tenant), request_id)
    detail = f"{person.name} ({account}), of group {right.group}"
    audit.record(connection, [who.entry("sign in", "Session", name=new.id, detail=detail)])
    return row
