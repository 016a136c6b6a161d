"""Long polls: woken by a decision, also by one nobody announced, and ended when they must be."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest
from sqlalchemy import text

from app.store.database.database import Database
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer, GivenDatabase
from tests.support.reports import decide, poll, report, send
from tests.support.server import Reply, RunningServer, running_server

T = TypeVar("T")


def in_background(call: Callable[[], T]) -> Future[T]:
    return ThreadPoolExecutor(1).submit(call)


def comparable(reply: Reply) -> tuple[int, dict[str, str], str]:
    headers = dict(reply.headers)
    del headers["date"]
    number = headers.pop("x-request-id")
    return reply.status, headers, reply.text.replace(number, "")


def held(server: RunningServer, count: int = 1) -> None:
    """Returns once `count` polls wait: what they read of the database before is over."""
    line = "gpuwright_waiting_agents "
    for _ in range(1000):
        found = [one for one in server.request("GET", "/metrics").text.splitlines() if one.startswith(line)]
        if found and float(found[0].removeprefix(line)) >= count:
            return
    raise AssertionError("too few polls wait")


def test_without_an_assignment_there_is_nothing_new(server: RunningServer, node: str, token: str) -> None:
    assert poll(server, token, node).status == 204


@pytest.mark.slow
def test_an_assignment_is_answered_at_once_and_only_once(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    version = decide(database, 1, 1, node)[node]
    reply = poll(server, token, node, wait=20)
    assert (reply.status, reply.json["version"], reply.json["epoch"]) == (200, version, 1)
    assert poll(server, token, node, after=version).status == 204
    assert send(server, token, report(node)).json["assignmentVersion"] == version


@pytest.mark.slow
def test_a_decision_wakes_those_it_concerns(server: RunningServer, database: Database, node: str, token: str) -> None:
    other = f"{node}-other"
    waiting = in_background(lambda: poll(server, token, node, wait=30))
    bystander = in_background(lambda: poll(server, server.token("node", node=other), other, wait=3))
    held(server, 2)
    version = decide(database, 1, 1, node)[node]
    assert waiting.result(patience()).json["version"] == version
    assert bystander.result(patience()).status == 204


def test_a_decision_nobody_announced_arrives_all_the_same(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    waiting = in_background(lambda: poll(server, token, node, wait=30))
    held(server)

    def silently(connection: object) -> None:
        execute = connection.execute  # type: ignore[attr-defined]
        version = execute(text("UPDATE version SET value = value + 1 WHERE name = 'assignment' RETURNING value"))
        number = version.scalar()
        body = {"node": node, "version": number, "epoch": 1, "generation": 1}
        row = {"node": node, "version": number, "body": json.dumps(body)}
        execute(text("INSERT INTO assignment VALUES (:node, 1, 1, :version, :body, now())"), row)

    database.write(silently)
    assert waiting.result(patience()).status == 200


def test_case_10_an_older_leader_or_plan_writes_nothing(database: Database, node: str) -> None:
    epoch = 100
    assert decide(database, epoch, 5, node)
    assert decide(database, epoch, 5, node) == {}
    assert decide(database, epoch, 4, node) == {}
    assert decide(database, epoch - 1, 9, node) == {}
    assert decide(database, epoch - 1, 9, f"{node}-never-assigned") == {}
    assert decide(database, epoch + 1, 1, node)
    database.write(lambda connection: connection.execute(text("UPDATE assignment SET epoch = 1")))


def test_a_restored_database_has_the_last_word(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    version = decide(database, 1, 1, node)[node]
    assert poll(server, token, node, after=version + 1000, wait=20).json["version"] == version


def test_case_24_revoking_the_token_ends_its_open_poll_at_once(server: RunningServer, node: str, token: str) -> None:
    waiting = in_background(lambda: poll(server, token, node, wait=30))
    held(server)
    assert server.request("DELETE", f"/api/v1/tokens/{token.split('_')[1]}").status == 200
    assert waiting.result(patience()).status == 401


def test_another_nodes_assignment_does_not_exist(server: RunningServer, token: str) -> None:
    assert poll(server, token, "node-other").status == 404


@pytest.mark.parametrize("query", ["after=-1", "after=x", "waitSeconds=-1", "waitSeconds=1e9", "waitSeconds=nan"])
def test_nonsense_is_refused(server: RunningServer, node: str, token: str, query: str) -> None:
    assert server.request("GET", f"/api/v1/nodes/{node}/assignment?{query}", token=token).status == 422


def test_a_poll_past_the_router_is_answered_as_its_route_answers(
    server: RunningServer, database: Database, node: str, token: str
) -> None:
    version = decide(database, 1, 1, node)[node]
    assert poll(server, token, node, wait=20).status == 200, "now the server knows of it"
    for who, name, after in (
        (token, node, version), (token, node, 0), (token, "node-other", 0), (token, "%2e%2e", 0),
        (server.admin_token, node, 0),
    ):  # fmt: skip
        path = f"/api/v1/nodes/{name}/assignment"
        past, routed = (
            server.request("GET", f"{path}?{query}", token=who)
            for query in (f"after={after}&waitSeconds=0", f"waitSeconds=0&after={after}")
        )
        assert comparable(past) == comparable(routed)


@pytest.mark.slow
def test_stopping_the_server_ends_polls(postgres: DatabaseServer) -> None:
    url = postgres.create()
    with running_server(url, GPUWRIGHT_DATABASE_DIRECT="1") as running:
        token = running.token("node", node="node-1")
        waiting = in_background(lambda: poll(running, token, "node-1", wait=60))
        held(running)
        running.process.send_signal(signal.SIGTERM)
        assert waiting.result(patience()).status == 503
        assert running.process.wait(patience()) == 0
    postgres.drop(url)


@pytest.mark.slow
def test_a_fleet_of_polls_is_woken_by_one_query(server: RunningServer, database: Database, node: str) -> None:
    names = [f"{node}-{n}" for n in range(40)]
    tokens = {name: server.token("node", node=name) for name in names}
    with ThreadPoolExecutor(len(names)) as threads:
        waiting = {name: threads.submit(poll, server, tokens[name], name, 0, 30) for name in names}
        held(server, len(names))
        versions = decide(database, 1, 1, *names)
        replies: dict[str, Reply] = {name: future.result(patience()) for name, future in waiting.items()}
    assert {name: reply.json["version"] for name, reply in replies.items()} == versions


@pytest.mark.slow
def test_two_replicas_hear_each_other_on_every_kind_of_database(each_database: GivenDatabase) -> None:
    direct = "1" if each_database.direct else "0"
    environment = {"GPUWRIGHT_DATABASE_DIRECT": direct, "GPUWRIGHT_RATE_PER_SECOND": "10000"}
    with (
        running_server(each_database.url, **environment) as one,
        running_server(each_database.url, **environment) as two,
    ):
        database = Database(each_database.url, pool_size=2)
        token = one.token("node", node="node-1")
        seen: list[int] = []

        def follow() -> None:
            while len(seen) < 20:
                reply = poll((one, two)[len(seen) % 2], token, "node-1", seen[-1] if seen else 0, 20)
                assert reply.status == 200
                seen.append(reply.json["version"])

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        generation = 0
        while follower.is_alive() and generation < 5000:
            generation += 1
            decide(database, 1, generation, "node-1")
            follower.join(0.02)
        follower.join(patience())
        database.close()
    assert seen == sorted(set(seen))
    assert len(seen) == 20
