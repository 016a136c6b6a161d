"""Floods, and clients that do not read: what one caller takes costs no other caller its place."""

from __future__ import annotations

import threading

import pytest

from tests.app.http.conftest import Client, Start, request
from tests.app.http.small_app import token

MIB = 1024 * 1024


@pytest.mark.slow
def test_a_flood_of_one_token_gets_429_while_its_nodes_and_other_tokens_are_answered(start: Start) -> None:
    server = start(settings={"rate_per_second": 0.001, "rate_burst": 20})
    answers = [server.ask("GET", "/api/v1/services") for _ in range(30)]
    assert [answer.status for answer in answers] == [200] * 20 + [429] * 10
    limited = answers[-1]
    assert int(limited.headers["retry-after"]) >= 1
    assert "q=20" in limited.headers["ratelimit-policy"]
    assert limited.json["type"] == "urn:gpuwright:problem:rate-limited"
    assert server.ask("GET", "/api/v1/services", "other").status == 200
    assert server.ask("POST", "/api/v1/nodes/n1/report", "node", b"{}").status == 200


def test_a_node_that_floods_is_limited_in_its_own_lane(start: Start) -> None:
    server = start(settings={"report_rate_per_second": 0.001})
    statuses = [server.ask("POST", "/api/v1/nodes/n1/report", "node", b"{}").status for _ in range(12)]
    assert statuses == [200] * 10 + [429] * 2
    assert server.ask("GET", "/api/v1/services", "node").status == 200
    assert server.ask("POST", "/api/v1/nodes/n1/report", "admin", b"{}").status == 200  # not in the node lane


@pytest.mark.slow
def test_slow_requests_of_one_token_leave_room_for_others(start: Start) -> None:
    server = start(capacity={"working": 4, "working_each": 2})
    slow = [server.client() for _ in range(12)]
    for client in slow:
        client.send(request("GET", "/api/v1/slow?seconds=0.3"))
    assert server.ask("GET", "/api/v1/services", "other").status == 200
    assert server.ask("POST", "/api/v1/nodes/n1/report", "node", b"{}").status == 200
    assert "gpuwright_requests_in_flight 1.0" not in server.ask("GET", "/metrics", "viewer").body.decode()
    assert {client.answer().status for client in slow} == {200}


def test_case_30_heavy_reads_of_one_token_follow_each_other_and_of_all_are_few_at_a_time(start: Start) -> None:
    server = start(capacity={"heavy": 2})

    def at_once(*callers: str) -> set[int]:
        clients = [(server.client(), who) for who in callers]
        for client, who in clients:
            client.send(request("GET", "/api/v1/slo?seconds=0.1", who))
        return {client.answer().json["at_once"] for client, _ in clients}

    assert at_once("admin", "admin", "admin", "admin") == {1}
    assert at_once("admin", "other", "viewer", "tenant", "admin", "other") <= {1, 2}
    slow = server.client()
    slow.send(request("GET", "/api/v1/slo?seconds=0.3"))
    assert server.ask("GET", "/api/v1/services").status == 200
    assert slow.answer().status == 200


def test_pages_that_ask_the_solver_are_few_at_a_time_for_each_token_and_delay_none_of_its_other_pages(
    start: Start,
) -> None:
    server = start(capacity={"asking": 3, "asking_each": 2})

    def open_pages(who: str, count: int) -> list[Client]:
        clients = [server.client() for _ in range(count)]
        for client in clients:
            price = request("GET", "/services/shop/a/price?seconds=0.2", None, Cookie=f"gpuwright={token(who)}")
            client.send(price)
        return clients

    asking = open_pages("admin", 6)
    cookie = f"gpuwright={token('admin')}"
    assert server.ask("GET", "/services", None, Cookie=cookie).status == 200
    assert {client.answer().json["at_once"] for client in asking} <= {1, 2}
    both = open_pages("admin", 4) + open_pages("other", 4)
    assert {client.answer().json["at_once"] for client in both} <= {1, 2, 3}


@pytest.mark.slow
def test_case_22_clients_that_do_not_read_their_answers_keep_no_place(start: Start) -> None:
    server = start(capacity={"heavy": 4, "working": 4, "working_each": 1, "queue_seconds": 600.0})
    callers = ("admin", "other", "viewer", "tenant")
    stuck = [server.client() for _ in callers]
    for client, who in zip(stuck, callers, strict=True):
        client.send(request("GET", "/api/v1/slo?kibibytes=15000", who))
    for who in callers:
        assert server.ask("GET", "/api/v1/slo", who).status == 200
        assert server.ask("GET", "/api/v1/services", who).status == 200
    assert all(len(client.answer().body) > 15_000_000 for client in stuck)


@pytest.mark.slow
def test_case_22_a_token_that_leaves_too_much_unread_loses_its_oldest_answer_and_nobody_else_any(start: Start) -> None:
    server = start(capacity={"unsent_bytes_each": 40 * MIB, "unsent_bytes": 100 * MIB})
    other, oldest, newest = server.client(), server.client(), server.client()
    other.send(request("GET", "/api/v1/services?kibibytes=30000", "other"))
    oldest.send(request("GET", "/api/v1/services?kibibytes=30000"))
    server.until_unsent(40e6)
    newest.send(request("GET", "/api/v1/services?kibibytes=30001"))
    server.until_told('gpuwright_cut_connections_total{reason="unread-answers"} 1.0')
    assert len(oldest.answer().body) < 30_000 * 1024
    assert len(other.answer().body) == 30_000 * 1024
    assert len(newest.answer().body) == 30_001 * 1024


@pytest.mark.slow
def test_one_body_that_many_callers_are_sent_counts_once_and_cuts_none_of_them(start: Start) -> None:
    server = start(capacity={"unsent_bytes_each": 15 * MIB, "unsent_bytes": 25 * MIB})
    clients = [server.client() for _ in range(4)]
    for client, who in zip(clients, ("admin", "other", "viewer", "tenant"), strict=True):
        client.send(request("GET", "/api/v1/tenants", who))
        server.until_unsent(1e6)
    assert all(len(client.answer().body) == 10 * MIB for client in clients)
    server.until_told("gpuwright_unsent_answer_bytes 0.0")


def test_a_queue_that_is_full_answers_503(start: Start) -> None:
    server = start(capacity={"working": 1, "working_each": 1, "queue": 1})
    clients = [server.client() for _ in range(5)]
    for client in clients:
        client.send(request("GET", "/api/v1/slow?seconds=0.5"))
    assert sorted(client.answer().status for client in clients) == [200, 200, 503, 503, 503]


def test_one_token_may_keep_only_so_many_watches_open(start: Start) -> None:
    server = start(capacity={"long_each": 3})
    watches = [server.client() for _ in range(3)]
    for watch in watches:
        watch.send(request("GET", "/api/v1/watch"))
        assert watch.answer().status == 200
    assert server.ask("GET", "/api/v1/watch").status == 503
    other = server.client()
    other.send(request("GET", "/api/v1/watch", "other"))
    assert other.answer().status == 200


@pytest.mark.slow
def test_heartbeats_are_answered_throughout_a_flood_of_everything_else(start: Start) -> None:
    server = start()
    over = threading.Event()

    def flood(number: int) -> None:
        flooding = server.client()
        while not over.is_set():
            who = ("admin", "nobody", None)[number % 3]
            flooding.send(request("GET", "/api/v1/services?kibibytes=10", who))
            if not flooding.answer().status:
                flooding = server.client()

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(9)]
    for thread in threads:
        thread.start()
    try:
        beats = [server.ask("POST", "/api/v1/nodes/n1/report", "node", b"{}").status for _ in range(20)]
    finally:
        over.set()
        for thread in threads:
            thread.join()
    assert beats.count(200) >= 10  # 429 only where the beats themselves came faster than 10 a second
    assert set(beats) <= {200, 429}
