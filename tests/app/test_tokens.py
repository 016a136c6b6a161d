"""The cache of tokens: what it remembers, and that a revocation is never missed by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Connection

from app import tokens
from app.problem import HttpProblem
from app.store.access import tokens as rows
from app.store.database.database import Database
from app.tokens import Authenticator
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer


@pytest.fixture
def database(postgres: DatabaseServer) -> Iterator[Database]:
    """One with a single connection, so that a test can keep it busy."""
    url = postgres.create()
    database = Database(url, pool_size=1, direct=True)
    yield database
    database.close()
    postgres.drop(url)


def bearer(database: Database, expires_in_seconds: float | None = None) -> str:
    new = tokens.new()
    draft = rows.TokenDraft(
        id=new.id,
        secret_hash=new.secret_hash,
        scope="viewer",
        created_by="tests",
        expires_in_seconds=expires_in_seconds,
    )
    database.write(lambda connection: rows.insert(connection, draft))
    return f"Bearer {new.text}"


def test_a_token_is_looked_up_once(database: Database) -> None:
    authenticator, header = Authenticator(database), bearer(database)
    assert authenticator.cached(header) is None
    assert authenticator.principal(header) == authenticator.cached(header)
    token_id = header.split("_")[1]
    database.write(lambda connection: rows.revoke(connection, token_id))
    assert authenticator.principal(header) == authenticator.cached(header), "the database is not asked again"
    authenticator.changed()
    with pytest.raises(HttpProblem, match="this token was revoked"):
        authenticator.principal(header)


SPELLINGS = [None, "", "Bearer", "Bearer gw_x", "Basic gw_x", "Token HEADER", "HEADER", "Bearer HEADERx"]


@pytest.mark.parametrize("header", SPELLINGS)
def test_what_is_no_token_is_refused_without_a_look_at_the_database(database: Database, header: str | None) -> None:
    authenticator = Authenticator(database)
    given = header and header.replace("HEADER", bearer(database).removeprefix("Bearer "))
    database.close()
    assert authenticator.cached(given) is None
    with pytest.raises(HttpProblem) as refused:
        authenticator.principal(given)
    assert refused.value.status == 401
    assert refused.value.headers == {"WWW-Authenticate": 'Bearer realm="gpuwright"'}


def test_neither_an_unknown_token_nor_a_known_one_with_another_secret_is_told_apart(database: Database) -> None:
    authenticator, known, other = Authenticator(database), bearer(database), tokens.new()
    assert authenticator.principal(known)
    mixed = f"{known[: len('Bearer gw_') + 12]}{other.text[len('gw_') + 12 :]}"
    for header in (f"Bearer {other.text}", mixed):
        with pytest.raises(HttpProblem, match="the server does not know this token"):
            authenticator.principal(header)


def test_the_scheme_of_a_token_has_any_case(database: Database) -> None:
    header = bearer(database)
    spelled = header.replace("Bearer ", "bEARER  ")
    assert Authenticator(database).principal(spelled) == Authenticator(database).principal(header)


def test_a_token_that_expires_is_good_no_longer_though_it_is_remembered(database: Database) -> None:
    authenticator = Authenticator(database)
    header = bearer(database, 0.5)
    expires_at = authenticator.principal(header).expires_at
    assert expires_at
    until(lambda: datetime.now(UTC) > expires_at, "it has expired")
    assert authenticator.cached(header) is None
    with pytest.raises(HttpProblem, match="this token expired at "):
        authenticator.principal(header)


def test_no_cached_token_is_good_while_a_busy_database_keeps_a_revocation_from_being_looked_up(
    database: Database,
) -> None:
    authenticator, header = Authenticator(database), bearer(database)
    authenticator.principal(header)
    busy, done = threading.Event(), threading.Event()

    def occupy(_: Connection) -> None:
        busy.set()
        done.wait(patience())

    flood = threading.Thread(target=database.read, args=[occupy])
    flood.start()
    busy.wait(patience())
    notice = threading.Thread(target=authenticator.changed)
    notice.start()
    until(lambda: authenticator.cached(header) is None, "a token of before the revocation is still taken")
    done.set()
    flood.join()
    notice.join()
    until(lambda: authenticator.cached(header) is not None, "the others are remembered again")


def test_case_24_a_request_that_waits_is_looked_at_after_any_revocation(database: Database) -> None:
    authenticator, header, other = Authenticator(database), bearer(database), bearer(database)
    who, ended = authenticator.principal(header), authenticator.principal(other)
    assert authenticator.is_current(who)
    assert authenticator.is_current(ended)
    database.write(lambda connection: rows.revoke(connection, ended.id))
    authenticator.changed()
    assert authenticator.live(who)
    assert not authenticator.is_current(ended)
    assert not authenticator.live(ended)
    authenticator.forget("another-one")
    assert authenticator.is_current(who)
    assert not authenticator.is_current(ended)


def test_the_end_that_a_token_gets_while_all_are_looked_up_is_kept(database: Database) -> None:
    authenticator, header = Authenticator(database), bearer(database)
    who = authenticator.principal(header)
    ends = datetime.now(UTC) + timedelta(minutes=1)
    ended = replace(who, expires_at=ends)

    class Meanwhile:
        """Reads as the database does, and in the meantime the token's successor is used for the first time."""

        def read(self, fn: Callable[[Connection], Any]) -> Any:
            for digest, (_, until_when, era) in list(authenticator._cache.items()):
                authenticator._cache[digest] = (ended, until_when, era)
            return database.read(fn)

    authenticator._database = Meanwhile()  # type: ignore[assignment]
    authenticator.refresh()
    assert authenticator.cached(header) == ended


def test_a_token_revoked_here_ends_at_once_and_the_others_stay(database: Database) -> None:
    authenticator = Authenticator(database)
    ended, stays = bearer(database), bearer(database)
    authenticator.principal(stays)
    authenticator.forget(authenticator.principal(ended).id)
    assert authenticator.cached(ended) is None
    assert authenticator.cached(stays) is not None


def test_what_a_revocation_elsewhere_left_in_doubt_is_not_made_good_by_one_here(database: Database) -> None:
    authenticator, header = Authenticator(database), bearer(database)
    authenticator.principal(header)
    database.close()
    other = Database("postgresql://nobody@127.0.0.1:1/none", pool_size=1)
    authenticator._database = other
    authenticator.changed()  # the database is away: nobody can say whether the token stands
    authenticator.forget("another-one")
    assert authenticator.cached(header) is None
    other.close()
