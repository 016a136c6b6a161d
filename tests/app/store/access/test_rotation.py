"""Tokens that take turns, and refusals that are written down once, on every kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

from app.store.access import rotation, tokens
from app.store.database.database import Database
from app.store.fleet import refusals
from tests.support.postgres import GivenDatabase


@pytest.fixture
def database(each_database: GivenDatabase) -> Iterator[Database]:
    opened = Database(each_database.url, pool_size=4, direct=each_database.direct)
    opened.write(lambda c: insert(c, "elder"))
    yield opened
    opened.close()


def insert(connection: object, token_id: str) -> None:
    tokens.insert(
        connection,  # type: ignore[arg-type]
        tokens.TokenDraft(
            id=token_id,
            secret_hash=token_id.encode(),
            scope="node",
            node="node-1",
            created_by="tests",
            expires_in_seconds=86400,
        ),
    )


def succeed(database: Database, elder: str, token_id: str) -> str | None:
    def turn(connection: object) -> str | None:
        in_use = rotation.make_room(connection, elder)  # type: ignore[arg-type]
        if in_use is None:
            insert(connection, token_id)
            rotation.set_successor(connection, elder, token_id)  # type: ignore[arg-type]
        return in_use

    return database.write(turn)


def live(database: Database, *names: str) -> set[str]:
    return database.read(lambda c: tokens.live_ids(c, names))


def test_a_turn_from_the_asking_to_the_end_of_the_elder(database: Database) -> None:
    assert succeed(database, "elder", "lost") is None
    assert succeed(database, "elder", "heard") is None
    assert live(database, "elder", "lost", "heard") == {"elder", "heard"}
    assert database.write(lambda c: rotation.take_up(c, "elder", "lost")) is None
    ends = database.write(lambda c: rotation.take_up(c, "elder", "heard"))
    assert ends is not None and ends <= datetime.now(UTC) + timedelta(seconds=rotation.OVERLAP_SECONDS + 5)
    again = database.write(lambda c: rotation.take_up(c, "elder", "heard"))
    assert again is not None and again <= ends, "a second first use gives no more time"
    assert succeed(database, "elder", "third") == "heard"
    assert database.read(lambda c: rotation.read_replaced_token(c, "elder")) is None, "its time is not over"
    heard = database.read(lambda c: tokens.find_live(c, "heard"))
    assert heard is not None and not heard.fresh


@pytest.mark.slow
def test_asked_and_used_at_once_by_many_there_is_no_deadlock_and_one_successor(database: Database) -> None:
    names = [f"s-{n}" for n in range(12)]

    def act(name: str) -> bool:
        in_use = succeed(database, "elder", name)
        return in_use is None and database.write(lambda c: rotation.take_up(c, "elder", name)) is not None

    with ThreadPoolExecutor(4) as threads:
        taken_up = [name for name, taken in zip(names, threads.map(act, names), strict=True) if taken]
    assert len(taken_up) == 1
    assert live(database, *names) == set(taken_up)


def test_a_refusal_is_news_once(database: Database) -> None:
    def note(generation: int, *instances: str) -> set[str]:
        return database.write(lambda c: refusals.note(c, "node-1", generation, instances))

    assert note(7, "a", "b") == {"a", "b"}
    assert note(7, "b", "c") == {"c"}
    assert note(8, "b") == {"b"}
    assert database.write(lambda c: refusals.forget(c, 100)) == 0
