"""The cache of tokens: what it remembers, and that a revocation is never missed by it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, text

from app import tokens
from app.problem import HttpProblem
from app.store.access import rotation
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


def bearer(database: Database, expires_in_seconds: float | None = None, node: str = "", elder: str = "") -> str:
    new = tokens.new()
    draft = rows.TokenDraft(
        id=new.id,
        secret_hash=new.secret_hash,
        scope="node" if node else "viewer",
        node=node,
        created_by="tests",
        expires_in_seconds=expires_in_seconds,
    )

    def insert(connection: Connection) -> None:
        rows.insert(connection, draft)
        if elder:
            rotation.set_successor(connection, id_of(elder), new.id)

    database.write(insert)
    return f"Bearer {new.text}"


def id_of(header: str) -> str:
    return header.split("_")[1]


def revoke(database: Database, header: str) -> None:
    database.write(lambda connection: rows.revoke(connection, id_of(header)))


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
    assert authenticator.is_current(who), "all are looked up at once"
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


def test_a_token_ends_a_minute_after_its_successor_is_first_used_and_no_other_does(database: Database) -> None:
    authenticator = Authenticator(database)
    elder, other = bearer(database, 3600, "node-1"), bearer(database, 7200, "node-2")
    before = {header: authenticator.principal(header).expires_at for header in (elder, other)}
    successor = bearer(database, 3600, "node-1", elder)
    authenticator.principal(successor)
    remembered = authenticator.cached(elder)
    assert remembered and remembered.expires_at
    assert remembered.expires_at < datetime.now(UTC) + timedelta(seconds=61)
    still = authenticator.cached(other)
    assert still and still.expires_at == before[other]
    fresh = Authenticator(database).principal(elder)
    assert fresh == remembered, "it is in the database, too"


def test_a_successor_that_is_revoked_while_it_is_taken_up_is_refused(database: Database) -> None:
    authenticator = Authenticator(database)
    elder = bearer(database, 3600, "node-1")
    successor = bearer(database, 3600, "node-1", elder)

    def write(fn: Callable[[Connection], Any]) -> Any:
        revoke(database, successor)
        return database.write(fn)

    authenticator._database = SimpleNamespace(read=database.read, write=write)  # type: ignore[assignment]
    with pytest.raises(HttpProblem, match="this token was revoked"):
        authenticator.principal(successor)
    assert authenticator.cached(successor) is None
    ends = Authenticator(database).principal(elder).expires_at
    assert ends and ends > datetime.now(UTC) + timedelta(minutes=30)


def test_a_token_that_comes_again_after_its_successor_is_told_once_a_minute(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[None] = []
    authenticator = Authenticator(database, lambda: counted.append(None))
    spent = [bearer(database, 3600, f"node-{at}") for at in range(2)]
    for at, header in enumerate(spent):
        authenticator.principal(bearer(database, 3600, f"node-{at}", header))

    def told() -> list[str]:
        sql = text("SELECT name FROM audit WHERE outcome = 'alarm'")
        return [name for (name,) in database.read(lambda connection: list(connection.execute(sql)))]

    def comes(header: str) -> None:
        with pytest.raises(HttpProblem):
            authenticator.principal(header)

    authenticator.forget(node="node-0")
    authenticator.forget(node="node-1")
    assert authenticator.principal(spent[0]), "it has a minute left"
    assert told() == []
    authenticator.forget(node="node-0")
    end = text("UPDATE token SET expires_at = now() WHERE node LIKE 'node-%' AND replaces = ''")
    database.write(lambda connection: connection.execute(end))
    comes(f"{spent[0][:-4]}xxxx")
    comes(bearer(database, -1.0, "node-9"))
    assert (told(), counted) == ([], []), "neither a wrong secret nor a token without a successor is an alarm"
    comes(spent[0])
    comes(spent[0])
    assert told() == [id_of(spent[0])]
    comes(spent[1])
    comes(spent[0])
    assert sorted(told()) == sorted(map(id_of, spent))
    monkeypatch.setattr(tokens, "MOST_ALARMED", 2)
    third = bearer(database, 3600, "node-3")
    authenticator.principal(bearer(database, 3600, "node-3", third))
    authenticator.forget(node="node-3")
    database.write(lambda connection: connection.execute(end))
    comes(third)
    assert len(authenticator._alarmed) == 1, "what is remembered of alarms is bounded"
    monkeypatch.setattr(tokens, "ALARM_SECONDS", -1.0)
    comes(spent[0])
    comes(spent[0])
    assert len(told()) == len(counted) == 5, "after a minute it is told again"


def test_the_tokens_that_are_remembered_are_bounded(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "CACHE_SIZE", 2)
    authenticator = Authenticator(database)
    headers = [bearer(database) for _ in range(3)]
    who = [authenticator.principal(header) for header in headers[:2]]
    assert all(map(authenticator.cached, headers[:2]))
    authenticator.principal(headers[2])
    assert [authenticator.cached(header) is not None for header in headers] == [False, False, True]
    assert not any(map(authenticator.is_current, who))


def test_a_token_is_asked_for_again_after_a_while(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator, header = Authenticator(database), bearer(database)
    monkeypatch.setattr(tokens, "CACHE_SECONDS", -1.0)
    authenticator.principal(header)
    assert authenticator.cached(header) is None
    monkeypatch.setattr(tokens, "CACHE_SECONDS", 60.0)
    authenticator.refresh()
    assert authenticator.cached(header) is not None, "and all at once before that"
    assert [token for token, _ in authenticator.used()] == [id_of(header)]
    assert authenticator.used() == []


def test_a_revocation_while_a_token_is_read_is_not_missed(database: Database) -> None:
    authenticator, header = Authenticator(database), bearer(database)

    def read(fn: Callable[[Connection], Any]) -> Any:
        found = database.read(fn)
        authenticator.forget("another-one")
        return found

    authenticator._database = SimpleNamespace(read=read)  # type: ignore[assignment]
    who = authenticator.principal(header)
    assert authenticator.cached(header) is None
    assert not authenticator.is_current(who)
    assert authenticator.live(who)
    assert not authenticator.is_current(who), "one came while it was looked at"
    authenticator._database = database
    assert authenticator.live(who)
    assert authenticator.is_current(who)


def test_a_new_token_is_unlike_any_other_and_only_its_own_kind_reads_it() -> None:
    made = [tokens.new(prefix) for prefix in ("gw", "gwj", "gwc", "gwl") for _ in range(50)]
    assert len({new.id for new in made}) == len({new.text for new in made}) == 200
    for new in made[:51]:
        prefix, token_id, secret = new.text.split("_", 2)
        assert (len(token_id), tokens.hash_secret(secret)) == (12, new.secret_hash)
        assert tokens.parse(new.text, prefix) == (token_id, secret)
        assert tokens.parse(new.text, "gw" if prefix != "gw" else "gwj") is None
        assert tokens.parse(f"{new.text}x", prefix) is None


def test_a_token_of_a_node_is_forgotten_with_all_of_that_node(database: Database) -> None:
    authenticator = Authenticator(database)
    headers = [bearer(database, node=node) for node in ("node-1", "node-1", "node-2", "")]
    who = [authenticator.principal(header) for header in headers]
    authenticator.forget(node="node-1")
    assert [authenticator.cached(header) is not None for header in headers] == [False, False, True, True]
    assert [authenticator.is_current(principal) for principal in who] == [False, False, True, True]
    authenticator.forget(token_id=who[2].id)
    assert [authenticator.cached(header) is not None for header in headers] == [False, False, False, True]
    revoke(database, headers[0])
    assert authenticator.live(who[0]) is False
    assert authenticator.live(who[1]) is True


def test_a_revocation_that_nobody_told_of_is_found_when_all_are_looked_up(database: Database) -> None:
    authenticator, header, other = Authenticator(database), bearer(database), bearer(database)
    assert authenticator.principal(header)
    assert authenticator.principal(other)
    revoke(database, header)
    assert authenticator.cached(header) is not None
    authenticator.refresh()
    assert (authenticator.cached(header), authenticator.cached(other) is not None) == (None, True)


def test_what_is_known_needs_no_database(database: Database) -> None:
    authenticator, header = Authenticator(database), bearer(database)
    authenticator.refresh()
    who = authenticator.principal(header)
    authenticator._database = SimpleNamespace()  # type: ignore[assignment]
    assert authenticator.live(who)
    assert authenticator.principal(header) == who
    Authenticator(authenticator._database).refresh()  # of nothing
