"""A node's token takes turns with the next one: no answer lost locks a node out, and a copied token raises an alarm."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.support.patience import until
from tests.support.server import Reply, RunningServer

NODE = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}
_numbers = itertools.count()


@pytest.fixture
def joined(server: RunningServer) -> tuple[str, str]:
    """A node that has joined, and its token."""
    name = f"turning-{next(_numbers)}"
    one_time = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    reply = server.request("POST", "/api/v1/join", {"token": one_time, "node": name, **NODE}, token="")
    assert reply.status == 201, reply.text
    return name, reply.json["token"]


def ask(server: RunningServer, name: str, token: str) -> Reply:
    return server.request("POST", f"/api/v1/nodes/{name}/token", token=token)


def works(server: RunningServer, token: str) -> bool:
    return server.request("GET", "/api/v1/whoami", token=token).status == 200


def id_of(token: str) -> str:
    return token.split("_")[1]


def end(server: RunningServer, token: str) -> None:
    """The minute that it had left is over, and this replica hears of it soon: a token was revoked."""
    with psycopg.connect(server.database_url) as connection:
        connection.execute("UPDATE token SET expires_at = now() WHERE id = %s", [id_of(token)])
    other = server.request("POST", "/api/v1/tokens", {"scope": "viewer"}).json["id"]
    assert server.request("DELETE", f"/api/v1/tokens/{other}").status == 200


def alarms(server: RunningServer, token: str) -> list[Any]:
    entries = server.request("GET", "/api/v1/audit?limit=200").json["items"]
    return [one for one in entries if one["outcome"] == "alarm" and one["name"] == id_of(token)]


def ends(server: RunningServer, token: str) -> timedelta | None:
    with psycopg.connect(server.database_url) as connection:
        row = connection.execute("SELECT expires_at - now() FROM token WHERE id = %s", [id_of(token)]).fetchone()
    assert row is not None
    return row[0]  # type: ignore[no-any-return]


@pytest.mark.slow
def test_a_joined_nodes_token_ends_after_a_month_and_says_so(server: RunningServer) -> None:
    one_time = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    words = {"token": one_time, "node": "ending", **NODE}
    told = server.request("POST", "/api/v1/join", words, token="").json
    lifetime = datetime.fromisoformat(told["expiresAt"]) - datetime.fromisoformat(told["issuedAt"])
    assert lifetime == timedelta(days=30)
    assert told["token"] and works(server, told["token"])


@pytest.mark.slow
def test_case_24_the_old_token_has_a_minute_left_once_the_new_one_is_used(
    server: RunningServer, joined: tuple[str, str]
) -> None:
    name, old = joined
    made = ask(server, name, old)
    assert made.status == 201
    left = ends(server, old)
    assert left is not None and left > timedelta(days=29), "nobody has used the new one yet"
    assert works(server, made.json["token"])
    left = ends(server, old)
    assert left is not None and left <= timedelta(seconds=60)
    assert works(server, old)
    end(server, old)
    until(lambda: not works(server, old), "the replica hears that the old token has ended")
    assert works(server, made.json["token"])


def test_case_24_an_answer_lost_on_the_way_locks_nobody_out(server: RunningServer, joined: tuple[str, str]) -> None:
    name, old = joined
    lost, heard = ask(server, name, old).json["token"], ask(server, name, old).json["token"]
    assert not works(server, lost), "one successor at a time"
    assert works(server, heard)
    third = ask(server, name, heard)
    assert third.status == 201 and works(server, third.json["token"])


@pytest.mark.slow
def test_case_24_a_token_that_was_given_up_and_comes_again_is_an_alarm(
    server: RunningServer, joined: tuple[str, str]
) -> None:
    name, stolen = joined
    current = ask(server, name, stolen).json["token"]
    assert works(server, current)
    assert alarms(server, stolen) == []
    again = ask(server, name, stolen)  # within its last minute it may finish what it began, and not this
    assert (again.status, len(alarms(server, stolen))) == (409, 1)
    end(server, stolen)
    until(lambda: not works(server, stolen), "the replica hears that the stolen token has ended")
    for _ in range(3):
        assert ask(server, name, stolen).status == 401
    assert len(alarms(server, stolen)) == 2, "one a minute, however often it comes"
    assert id_of(current) in alarms(server, stolen)[0]["detail"]
    counted = "gpuwright_node_token_reuse_total "
    (line,) = [one for one in server.request("GET", "/metrics").text.splitlines() if one.startswith(counted)]
    assert float(line.removeprefix(counted)) >= 2
    assert works(server, current)


def test_case_24_a_wrong_secret_beside_a_spent_id_is_no_alarm(server: RunningServer, joined: tuple[str, str]) -> None:
    name, old = joined
    assert works(server, ask(server, name, old).json["token"])
    end(server, old)
    assert not works(server, f"gw_{id_of(old)}_{'x' * 43}")
    assert alarms(server, old) == []


def test_case_24_revoking_a_nodes_token_ends_its_successor_too_when_it_is_unused(
    server: RunningServer, joined: tuple[str, str]
) -> None:
    """A thief who has asked for a successor keeps it no longer than the token itself: joining anew ends both."""
    name, stolen = joined
    successor = ask(server, name, stolen).json["token"]
    one_time = server.request("POST", "/api/v1/jointokens", {"node": name}).json["token"]
    anew = server.request("POST", "/api/v1/join", {"token": one_time, "node": name, **NODE}, token="").json["token"]
    assert [works(server, token) for token in (stolen, successor, anew)] == [False, False, True]
    following = ask(server, name, anew).json["token"]
    assert server.request("DELETE", f"/api/v1/tokens/{id_of(anew)}").status == 200
    assert [works(server, token) for token in (anew, following)] == [False, False]


@pytest.mark.slow
def test_asked_by_many_at_once_one_successor_works(server: RunningServer, joined: tuple[str, str]) -> None:
    name, old = joined
    with ThreadPoolExecutor(6) as threads:
        replies = list(threads.map(lambda _: ask(server, name, old), range(12)))
    assert {reply.status for reply in replies} == {201}
    assert sum(works(server, reply.json["token"]) for reply in replies) == 1


def test_case_25_a_node_asks_for_no_other_nodes_token(server: RunningServer, joined: tuple[str, str]) -> None:
    _, token = joined
    assert ask(server, "node-1", token).status == 403
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["outcome"], entry["name"], entry["principal"]) == ("refused", "node-1", id_of(token))


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/api/v1/nodes/node-1", {"spec": NODE}),
        ("DELETE", "/api/v1/nodes/node-1", None),
        ("POST", "/api/v1/tokens", {"scope": "admin"}),
        ("PUT", "/api/v1/services/shop/search", {"spec": {}}),
    ],
)
def test_case_25_what_a_node_tries_to_write_is_refused_and_in_the_audit(
    server: RunningServer, joined: tuple[str, str], method: str, path: str, body: Any
) -> None:
    name, token = joined
    assert server.request(method, path, body, token=token).status == 403
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["outcome"], entry["principal"]) == ("refused", id_of(token))
    assert entry["detail"] == f"the token of node {name} may not {method} {path}"


@pytest.mark.slow
def test_an_expired_node_is_not_replaced_by_whoever_has_a_join_token(
    server: RunningServer, joined: tuple[str, str]
) -> None:
    name, token = joined
    end(server, token)
    for_any = server.request("POST", "/api/v1/jointokens", {}).json["token"]
    taken = server.request("POST", "/api/v1/join", {"token": for_any, "node": name, **NODE}, token="")
    assert (taken.status, "made for it by name" in taken.json["detail"]) == (409, True)


def test_the_audit_names_each_turn(server: RunningServer, joined: tuple[str, str]) -> None:
    name, old = joined
    new = ask(server, name, old).json["token"]
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["verb"], entry["name"], entry["after"]["node"]) == ("rotate", id_of(new), name)
    assert new.split("_", 2)[2] not in str(entry)
