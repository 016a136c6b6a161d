"""Gateways follow the endpoints by long polls, and what they count is kept: the newest word, and nothing absurd."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

import msgspec
import pytest

from agents.contract.assignments import AssignedInstance, Assignment
from app.store.database.database import Database
from app.store.fleet import assignments, endpoints
from app.store.fleet.endpoints import GatewayLimit
from tests.simulation.worlds import gpu_type, model, profile, service
from tests.support.gateway_counts import newest_counts
from tests.support.patience import patience, until
from tests.support.reports import instance, note_assigned, report, send
from tests.support.server import Reply, RunningServer

EDGE = "edge-1"
sequences = count(1)


@pytest.fixture(scope="module")
def database(server: RunningServer) -> Iterator[Database]:
    opened = Database(server.database_url, pool_size=2, direct=True)
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def edge(server: RunningServer) -> str:
    return server.token("gateway", gateway=EDGE)


@pytest.fixture(scope="module")
def node(server: RunningServer) -> str:
    note_assigned(server.database_url, "node-1", "i-1")
    return server.token("node", node="node-1")


def tell(server: RunningServer, node: str, *copies: tuple[str, str], service: str = "search") -> Reply:
    """The node says that it has these copies, each with its stage."""
    there = [
        {"id": name, "instance": "i-1", "gpu": 0, "stage": stage, "address": "10.0.0.1:9000"} for name, stage in copies
    ]
    said = report("node-1", next(sequences), instances=[instance(service=service)], copies=there)
    reply = send(server, node, said)
    assert reply.status == 200
    return reply


def ask(server: RunningServer, token: str, after: int = 0, wait: float = 0, service: str = "") -> Reply:
    path = f"/api/v1/endpoints?after={after}&waitSeconds={wait}" + (f"&service={service}" if service else "")
    return server.request("GET", path, token=token, timeout_seconds=wait + 20)


def with_copies(answer: Any) -> list[Any]:
    """Of the services, those with copies; all that are declared are there."""
    return [one for one in answer["services"] if one.get("copies")]


def version(server: RunningServer, token: str, expected: Any) -> int:
    """Of the endpoints once the services with copies are as expected."""
    found: dict[str, Any] = {}

    def holds() -> bool:
        found.update(ask(server, token, wait=5).json)
        shown = {one["service"]: [copy["id"] for copy in one["copies"]] for one in with_copies(found)}
        return bool(shown == expected)

    until(holds, f"{found}")
    return int(found["version"])


def waiting(server: RunningServer, token: str, after: int) -> Future[Reply]:
    return ThreadPoolExecutor(1).submit(ask, server, token, after, 30)


def test_a_poll_is_answered_when_a_copy_comes_and_when_it_is_drained(
    server: RunningServer, edge: str, node: str
) -> None:
    tell(server, node, ("a", "ready"))
    first = version(server, edge, {"shop/search": ["a"]})
    assert ask(server, edge, first).status == 204
    poll = waiting(server, edge, first)
    tell(server, node, ("a", "ready"), ("b", "ready"))
    second = poll.result(patience()).json
    assert [copy["id"] for copy in with_copies(second)[0]["copies"]] == ["a", "b"]
    poll = waiting(server, edge, second["version"])
    tell(server, node, ("a", "draining"), ("b", "ready"))
    third = poll.result(patience()).json
    assert [copy.get("drained", False) for copy in with_copies(third)[0]["copies"]] == [True, False]
    assert first < second["version"] < third["version"]


def test_what_is_no_news_for_gateways_wakes_none(server: RunningServer, edge: str, node: str) -> None:
    tell(server, node, ("a", "ready"))
    known = version(server, edge, {"shop/search": ["a"]})
    poll = ThreadPoolExecutor(1).submit(ask, server, edge, known, 2)
    held = [{"instance": "i-9", "reason": "no_room_to_hand_over"}]
    copies = [{"id": "a", "instance": "i-1", "gpu": 0, "stage": "ready", "address": "10.0.0.1:9000"}]
    assert send(server, node, report("node-1", next(sequences), copies=copies, heldBack=held)).status == 200
    assert poll.result(patience()).status == 204


def test_what_nodes_are_told_weighs_their_copies(
    server: RunningServer, edge: str, node: str, database: Database
) -> None:
    tell(server, node, ("a", "ready"))
    known = version(server, edge, {"shop/search": ["a"]})
    poll = waiting(server, edge, known)
    assigned = AssignedInstance("i-1", 0, "shop", "search", rate_per_second=123.0, slo_ms=80.0, percentile=98.0)

    def body(version: int) -> str:
        return msgspec.json.encode(Assignment("node-1", version, 1, 1, instances=(assigned,))).decode()

    database.write(
        lambda connection: assignments.write(connection, 1, [assignments.AssignmentDraft("node-1", 1, body)])
    )
    (search,) = with_copies(poll.result(patience()).json)
    assert (search["copies"][0]["weight"], search["sloMs"], search["percentile"]) == (123.0, 80.0, 98.0)


def test_limits_are_told_and_the_same_again_is_no_news(
    server: RunningServer, edge: str, node: str, database: Database
) -> None:
    tell(server, node, ("a", "ready"))
    known = version(server, edge, {"shop/search": ["a"]})
    poll = waiting(server, edge, known)
    limits = {"shop/search": GatewayLimit(100, 0.25, 7, {"node-1/0": 24}), "shop/free": GatewayLimit()}
    assert database.write(lambda connection: endpoints.set_limits(connection, limits))
    (search,) = with_copies(poll.result(patience()).json)
    assert (search["queueLimit"], search["shedShare"], search["retryAfterSeconds"]) == (100, 0.25, 7)
    assert database.read(endpoints.read_limits)["shop/search"].in_time == {"node-1/0": 24}
    assert not database.write(lambda connection: endpoints.set_limits(connection, limits))
    assert database.write(lambda connection: endpoints.set_limits(connection, {}))
    assert database.read(endpoints.read_limits) == {}


def test_one_service_and_a_tenants_own_are_told_apart(server: RunningServer, edge: str, node: str) -> None:
    tell(server, node, ("a", "ready"))
    version(server, edge, {"shop/search": ["a"]})
    assert ask(server, edge, service="shop/other").json["services"] == []
    assert len(ask(server, edge, service="shop/search").json["services"]) == 1
    (own,) = with_copies(ask(server, server.token("viewer", tenant="shop")).json)
    assert "address" not in own["copies"][0]
    assert with_copies(ask(server, server.token("viewer", tenant="lab")).json) == []


def test_a_revoked_token_is_told_nothing_any_more(server: RunningServer, edge: str, node: str) -> None:
    tell(server, node, ("a", "ready"))
    known = version(server, edge, {"shop/search": ["a"]})
    made = server.request("POST", "/api/v1/tokens", {"scope": "gateway", "gateway": "edge-9"}).json
    poll = waiting(server, made["token"], known)
    until(lambda: ask(server, edge, known).status == 204)
    assert server.request("DELETE", f"/api/v1/tokens/{made['id']}").status == 200
    tell(server, node, ("a", "ready"), ("c", "ready"))
    assert poll.result(patience()).status in (204, 401)


def test_a_version_that_was_never_given_out_is_answered_at_once(server: RunningServer, edge: str, node: str) -> None:
    tell(server, node, ("a", "ready"))
    known = version(server, edge, {"shop/search": ["a"]})
    assert ask(server, edge, known + 10**6, wait=60).json["version"] == known  # the database was restored


def test_case_23_a_bad_address_costs_only_itself(server: RunningServer, edge: str, node: str) -> None:
    addresses = {"good": "10.0.0.1:9000", "scope": "[2001:db8::1%;x]:80", "metadata": "169.254.169.254:80"}
    there = [
        {"id": name, "instance": "i-1", "gpu": 0, "stage": "ready", "address": address}
        for name, address in addresses.items()
    ]
    answer = send(server, node, report("node-1", next(sequences), copies=there))
    assert answer.status == 200
    dropped = {part["what"]: part["reason"] for part in answer.json["dropped"]}
    assert dropped == {"copy scope": "bad_address", "copy metadata": "bad_address"}
    version(server, edge, {"shop/search": ["good"]})
    state = server.request("GET", "/api/v1/nodes/node-1/state").json["copies"]
    assert {copy["id"]: copy.get("address", "") for copy in state} == {
        "good": "10.0.0.1:9000",
        "scope": "",
        "metadata": "",
    }
    (event,) = server.request("GET", "/api/v1/events?reason=copy_not_routed&name=node-1").json["items"]
    assert event["severity"] == "alarm"
    assert "169.254.169.254" in event["message"]


def test_case_25_a_withdrawn_instance_is_routed_for_a_day(server: RunningServer, edge: str, database: Database) -> None:
    note_assigned(server.database_url, "node-7", "i-7", "lab/classify")
    copy = {"id": "old", "instance": "i-7", "gpu": 0, "stage": "ready", "address": "10.0.0.7:9000"}
    sent = report("node-7", instances=[instance("i-7", tenant="bank", service="payments")], copies=[copy])
    assert send(server, server.token("node", node="node-7"), sent).status == 200

    def services() -> dict[str, list[str]]:
        found = with_copies(ask(server, edge, wait=1).json)
        return {line["service"]: [copy["id"] for copy in line["copies"]] for line in found}

    until(lambda: services().get("lab/classify") == ["old"], "the assigned service counts, not the reported one")
    assert "bank/payments" not in services()

    def withdraw(hours: int) -> None:
        since = f"now() - interval '{hours} hours'"
        statements = (
            f"UPDATE assigned SET withdrawn_at = {since} WHERE node = 'node-7'",
            "SELECT advance_endpoint()",  # anything that is news for gateways
        )
        for sql in statements:
            database.write(lambda connection, sql=sql: connection.exec_driver_sql(sql))  # type: ignore[misc]

    withdraw(hours=23)
    assert database.read(lambda c: endpoints.read_copies(c, ["node-7"]))[0].services == {"i-7": "lab/classify"}
    withdraw(hours=25)
    until(lambda: "lab/classify" not in services(), "a day later it is not routed")


# Counts


def put(server: RunningServer, token: str, body: Any, name: str = EDGE) -> Reply:
    return server.request("PUT", f"/api/v1/gateways/{name}/counts", body, token=token)


def counts(sequence: int, began: str = "today", **service: Any) -> dict[str, Any]:
    known = {"service": "shop/search", "requests": 10, "errors": 3, "shed": 2, "latencyCounts": [0, 4, 3]}
    return {"began": began, "sequence": sequence, "services": [known | service]}


def test_the_newest_word_counts_and_an_older_one_is_answered_with_it(
    server: RunningServer, edge: str, database: Database
) -> None:
    assert put(server, edge, counts(5)).json == {"sequence": 5}
    assert put(server, edge, counts(4, requests=100)).json == {"sequence": 5}
    assert put(server, edge, counts(5, requests=100)).json == {"sequence": 5}
    (told,) = newest_counts(database)
    assert (told.gateway, told.counts.began, told.counts.services[0].requests) == (EDGE, "today", 10)
    assert told.counts.services[0].latency_counts == (0, 4, 3)
    assert put(server, edge, counts(6, "later", requests=7)).json == {"sequence": 6}
    (told,) = newest_counts(database)
    assert (told.counts.began, told.counts.services[0].requests) == ("later", 7)
    assert newest_counts(database, told.received_at) == []


def test_case_18_a_thief_that_numbers_beyond_any_clock_does_not_silence_the_gateway(
    server: RunningServer, database: Database
) -> None:
    token = server.token("gateway", gateway="stolen")
    assert put(server, token, counts(5), "stolen").json == {"sequence": 5}
    assert put(server, token, counts(2**62 - 1, requests=99), "stolen").json == {"sequence": 5}
    assert put(server, token, counts(6), "stolen").json == {"sequence": 6}
    poison = "UPDATE gateway_state SET sequence = 4e18 WHERE gateway = 'stolen'"
    database.write(lambda connection: connection.exec_driver_sql(poison))
    assert put(server, token, counts(7), "stolen").json == {"sequence": 7}


BAD = [
    b"", b"null", b"[]", b"{", b"\xff", b"[" * 100_000, b'{"began": "x", "sequence": 1e400}', b'{"began": "x"}',
    b'{"began": "", "sequence": 1}', b'{"began": "x", "sequence": -1}', b'{"began": "x", "sequence": NaN}',
    json.dumps(counts(2**62)), json.dumps(counts(9, requests=-1)), json.dumps(counts(9, requests=1.5)),
    json.dumps(counts(9, requests=10**13)), json.dumps(counts(9, errors=11)), json.dumps(counts(9, shed=4)),
    json.dumps(counts(9, latencyCounts=[11])), json.dumps(counts(9, latencyCounts=[0] * 62)),
    json.dumps(counts(9, latencyCounts=[-1])), json.dumps(counts(9, service="search")),
    json.dumps(counts(9, service="../x")), json.dumps(counts(9, service="a/b\n")), json.dumps(counts(9, began="a\nb")),
    json.dumps({"began": "x", "sequence": 9, "services": counts(9)["services"] * 2}),
]  # fmt: skip


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_case_17_absurd_counts_are_refused_and_not_kept(
    server: RunningServer, edge: str, database: Database, body: bytes | str
) -> None:
    put(server, edge, counts(5))
    before = newest_counts(database)
    reply = put(server, edge, body)
    assert reply.status == 422, reply.text
    assert newest_counts(database)[0].counts == before[0].counts


@pytest.mark.slow
def test_case_8_a_nodes_report_is_answered_with_what_the_slowest_gateway_has_in_force(
    server: RunningServer, edge: str, node: str, database: Database
) -> None:
    database.write(lambda connection: connection.exec_driver_sql("DELETE FROM gateway_state"))  # those of other tests

    def answer(*copies: tuple[str, str]) -> tuple[int, int]:
        """The version of the endpoints that has these copies, and the one that all gateways have in force."""
        json = tell(server, node, *copies).json
        return json["endpoints"], json["routed"]

    tell(server, node, ("a", "ready"))
    first = version(server, edge, {"shop/search": ["a"]})
    assert put(server, edge, counts(900) | {"endpoints": first}).status == 200
    added, _ = answer(("a", "ready"), ("b", "ready"))
    assert added > first
    newest = version(server, edge, {"shop/search": ["a", "b"]})
    until(lambda: answer(("a", "ready"), ("b", "ready")) == (added, first), "the gateway is behind")
    assert put(server, edge, counts(901) | {"endpoints": newest}).status == 200
    until(lambda: answer(("a", "ready"), ("b", "ready"))[1] >= added, "now it has both")


def test_a_gateway_that_speaks_as_another_is_refused_and_audited(server: RunningServer, edge: str) -> None:
    assert put(server, edge, counts(1), "edge-2").status == 403
    for token in (server.token("operator"), server.token("node", node="node-1"), server.token("viewer", tenant="shop")):
        assert put(server, token, counts(1)).status == 403
    entry = server.request("GET", "/api/v1/audit?limit=1").json["items"][0]
    assert (entry["outcome"], entry["scope"]) in (("refused", "gateway"), ("refused", "node"))


def test_a_gateways_token_names_its_gateway(server: RunningServer) -> None:
    for body in (
        {"scope": "gateway"},
        {"scope": "viewer", "gateway": "edge-1"},
        {"scope": "node", "gateway": "edge-1"},
    ):
        assert server.request("POST", "/api/v1/tokens", body).status == 422


def test_what_a_gateway_leaves_out_becomes_an_event_of_that_gateway(server: RunningServer) -> None:
    token = server.token("gateway", gateway="picky")
    left_out = [{"node": "node-1", "copy": "bad", "reason": "HAProxy refuses it"}]
    for sequence in range(1, 20):
        assert put(server, token, counts(sequence) | {"leftOut": left_out}, "picky").status == 200
    (event,) = server.request("GET", "/api/v1/events?reason=copy_not_routed&kind=Gateway").json["items"]
    assert (event["name"], event["kind"]) == ("picky", "Gateway")
    assert event["times"] <= 3, "however often it is reported"
    assert "bad: node node-1: HAProxy refuses it" in event["message"]


def test_a_declared_service_is_an_endpoint_before_its_first_copy_and_until_it_is_deleted(
    server: RunningServer, edge: str
) -> None:
    assert server.request("POST", "/api/v1/apply", [gpu_type(), model("early"), profile("early")]).status == 200
    poll = waiting(server, edge, ask(server, edge).json["version"])
    assert server.request("POST", "/api/v1/apply", [service("early", 10.0)]).status == 200
    told = poll.result(patience()).json
    assert "shop/early" in {one["service"] for one in told["services"]}
    poll = waiting(server, edge, told["version"])
    assert server.request("DELETE", "/api/v1/services/shop/early").status in (200, 204)
    assert "shop/early" not in {one["service"] for one in poll.result(patience()).json["services"]}
