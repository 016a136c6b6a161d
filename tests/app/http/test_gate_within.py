"""The gate asked in this process: who comes in, who waits, who is told to come again, and at whose cost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.http import gate as rules
from tests.app.http.gate_site import ADMIN, FEW, Call, Message, Send, Site, read_metric, run
from tests.app.http.small_app import token


def test_a_route_finds_who_asks_with_what_body_and_by_what_id() -> None:
    async def story() -> None:
        site = Site()
        call = await site.ask("POST", "/api/v1/apply", "admin", b"{}", x_request_id="abc-1")
        assert (call.status, call.body, call.headers["x-request-id"]) == (200, b"yes", "abc-1")
        (state,) = site.arrived
        assert (state["principal"].id, state["body"], state["request_id"]) == ("p-admin", b"{}", "abc-1")
        assert call.scope["state"].keys() == {"principal", "request_id"}, "a body is kept by nobody"
        assert (await site.ask("GET", ADMIN)).status == 401
        assert len(site.arrived) == 1

    run(story)


def test_a_visitor_of_a_page_comes_in_by_the_session_of_a_cookie_alone() -> None:
    async def story() -> None:
        site = Site(capacity={**FEW, "peer_failures_burst": 3.0})
        for cookie, found in ((token("viewer"), "p-viewer"), ("unknown", None), ("", None)):
            assert (await site.ask("GET", "/nodes", "admin", cookie=f"gpuwright={cookie}")).status == 200
            principal = site.arrived[-1]["principal"]
            assert (principal and principal.id) == found
        assert (await site.ask("GET", "/nodes", cookie=f"gpuwright={token('slowed')}")).status == 429
        assert (await site.ask("GET", ADMIN, cookie=f"gpuwright={token('viewer')}")).status == 401
        assert (await site.ask("GET", "/sign-in", cookie="gpuwright=unknown")).status == 200
        assert site.arrived[-1]["principal"] is None
        assert "principal" not in (await site.ask("GET", "/healthz", "admin")).scope["state"]

    run(story)


def test_metrics_are_read_by_tokens_that_may_or_by_all_where_they_are_open() -> None:
    async def story() -> None:
        site, is_open = Site(), Site({"open_metrics": True})
        statuses = {who: (await site.ask("GET", "/metrics", who)).status for who in ("viewer", "tenant", "node", "")}
        assert statuses == {"viewer": 200, "tenant": 403, "node": 403, "": 401}
        assert (await is_open.ask("GET", "/metrics")).status == 200
        assert (await is_open.ask("GET", ADMIN)).status == 401
        assert (
            "a token of scope tenant operator may not read metrics"
            in (await site.ask("GET", "/metrics", "tenant")).detail
        )

    run(story)


def test_a_token_has_a_rate_and_a_node_that_reports_one_of_its_own() -> None:
    async def story() -> None:
        site = Site({"rate_burst": 3, "report_rate_per_second": 0.001})
        assert await site.statuses(5, "GET", ADMIN, "node") == [200] * 3 + [429] * 2
        assert await site.statuses(12, "POST", "/api/v1/nodes/n1/report", "node") == [200] * 10 + [429] * 2
        assert await site.statuses(4, "POST", "/api/v1/nodes/n1/report", "admin") == [200] * 3 + [429]
        refused = await site.ask("GET", ADMIN, "node")
        assert refused.detail.startswith("too many requests with this token; at most")
        assert refused.headers["ratelimit-policy"] == '"default";q=3;w=3000'
        reports = Site({"report_rate_per_second": 4.0})
        assert await reports.statuses(12, "POST", "/api/v1/nodes/n1/report", "node") == [200] * 12
        many = [await reports.ask("POST", "/api/v1/nodes/n1/report", "node") for _ in range(100)]
        assert {each.headers["ratelimit-policy"] for each in many if each.status == 429} == {'"default";q=12;w=3'}

    run(story)


def test_who_has_no_token_is_limited_by_address_and_signs_in_more_rarely() -> None:
    async def story() -> None:
        site = Site(capacity={"peer_burst": 3.0})
        assert await site.statuses(4, "GET", "/healthz") == [200] * 3 + [429]
        assert await site.statuses(1, "GET", "/healthz", peer="10.0.0.2") == [200]
        assert "requests without a token from this address" in (await site.ask("GET", "/healthz")).detail
        assert await site.statuses(1, "GET", ADMIN, "admin") == [200], "who has one is not"
        site = Site({"sign_ins_per_hour": 0.6})
        assert await site.statuses(3, "POST", "/sign-in") == [200] * 2 + [429]
        assert await site.statuses(2, "GET", "/sign-in") == [200] * 2
        assert await site.statuses(2, "POST", "/api/v1/join") == [200] * 2

    run(story)


@pytest.mark.parametrize("status", [401, 403, 404, 409, 400, 200])
def test_a_wrong_secret_in_a_body_counts_as_a_guess(status: int) -> None:
    async def story() -> None:
        site = Site(capacity=FEW)

        async def answer(send: Send) -> None:
            await send({"type": "http.response.start", "status": status, "headers": []})
            await send({"type": "http.response.body", "body": b""})

        site.answer = answer
        later = 429 if status in (401, 403, 404, 409) else status
        assert await site.statuses(3, "POST", "/api/v1/join") == [status, status, later]
        assert await site.statuses(3, "GET", "/healthz") == [status] * 3, "probes bring none"

    run(story)


def test_bodies_are_held_apart_by_node_caller_and_address_and_given_back() -> None:
    async def story() -> None:
        site = Site(
            capacity={
                "body_bytes": 300, "body_bytes_each": 100, "node_body_bytes": 50, "node_body_bytes_each": 50,
                "anonymous_body_bytes": 20, "anonymous_body_bytes_each": 20,
            }
        )  # fmt: skip
        for _ in range(2):
            for who, path, most in (
                ("admin", "/api/v1/apply", 100),
                ("node", "/api/v1/nodes/n1/report", 50),
                ("admin", "/api/v1/nodes/n1/report", 100),
                ("", "/api/v1/join", 20),
            ):
                assert (await site.ask("POST", path, who, bytes(most))).status == 200, path
                assert (await site.ask("POST", path, who, bytes(most + 1))).status == 503, path
        site.may_answer.clear()
        held = site.call("POST", "/api/v1/apply", "admin", bytes(100))
        await site.until_inside(1)
        assert read_metric("body_bytes") == 100
        assert (await site.ask("POST", "/api/v1/apply", "admin", b"x")).status == 503
        other = site.call("POST", "/api/v1/apply", "other", b"x")
        site.may_answer.set()
        assert [(await each.over()).status for each in (held, other)] == [200, 200]

    run(story)


def test_an_address_without_a_token_has_few_bodies_arriving_at_once() -> None:
    async def story() -> None:
        site = Site(capacity={"anonymous_bodies_each": 1})
        slow = site.call("POST", "/api/v1/join", body=b"")
        await asyncio.sleep(0)
        assert (await site.ask("POST", "/api/v1/join", body=b"x")).status == 503
        assert (await site.ask("POST", "/api/v1/join", body=b"x", peer="10.0.0.2")).status == 200
        tokens = [site.call("POST", "/api/v1/apply", "admin", b"") for _ in range(3)]
        slow.incoming.put_nowait({"type": "http.request", "body": b"x"})
        assert (await slow.over()).status == 200
        assert await site.statuses(2, "POST", "/api/v1/join", body=b"x") == [200, 200]
        slow = site.call("POST", "/api/v1/join", body=b"")
        await asyncio.sleep(0)
        assert await site.statuses(1, "POST", "/api/v1/join", body=b"x") == [503], "it has no more than before"
        for call in (*tokens, slow):
            call.incoming.put_nowait({"type": "http.disconnect"})
            assert (await call.over()).sent == [], "nobody is there to be answered"
        assert site.inside == 0

    run(story)


@pytest.mark.parametrize("path", ["/api/v1/apply", "/nodes"])
def test_a_token_or_session_that_ends_while_its_body_trickles_in_is_looked_at_again(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def ended(slow_seconds: float) -> int | None:
        monkeypatch.setattr(rules, "SLOW_BODY_SECONDS", slow_seconds)
        site = Site()
        call = site.call("POST", path, "admin", b"", cookie=f"gpuwright={token('admin')}")
        async with asyncio.timeout(20):
            while "principal" not in call.scope.get("state", {}):
                await asyncio.sleep(0)
        site.ended.add("p-admin")
        call.incoming.put_nowait({"type": "http.request", "body": b"x"})
        await call.over()
        return site.arrived[0]["principal"] and 200 if site.arrived else call.status

    async def story() -> None:
        assert await ended(60.0) == 200
        assert await ended(0.0) == (None if path == "/nodes" else 401)

    run(story)


LANES = [  # method, path, how many of one caller may be inside at once, and how many of two callers
    ("GET", "/api/v1/services", 3, 5),
    ("GET", "/api/v1/slo", 1, 2),
    ("POST", "/what-if", 2, 4),
    ("GET", "/nodes", 1, 2),
    ("GET", "/healthz", 8, 16),
    ("POST", "/api/v1/nodes/n1/report", 8, 16),
    ("GET", "/api/v1/watch", 7, 13),
]


@pytest.mark.parametrize(("method", "path", "of_one", "of_two"), LANES)
def test_each_kind_of_request_has_its_places_and_no_caller_has_them_all(
    method: str, path: str, of_one: int, of_two: int
) -> None:
    async def story() -> None:
        site = Site(
            capacity={
                "working": 5, "working_each": 3, "heavy": 2, "heavy_each": 1, "asking": 4, "asking_each": 2,
                "long": 13, "long_each": 7, "queue": 0, "queue_seconds": 0.001,
            }
        )  # fmt: skip

        def send(who: str, count: int) -> list[Call]:
            cookie = f"gpuwright={token(who)}"
            peer = "10.0.0.1" if who == "admin" else "10.0.0.2"
            return [site.call(method, path, who, cookie=cookie, peer=peer) for _ in range(count)]

        for _ in range(2):  # places are given back
            site.may_answer.clear()
            calls: list[Call] = []
            for who, most in (("admin", of_one), ("other", of_two)):
                calls += send(who, 8)
                async with asyncio.timeout(20):
                    while site.inside + sum(call.is_over for call in calls) < len(calls):
                        await asyncio.sleep(0)
                assert site.inside == most, who
            assert all(call.status == 503 and call.headers["retry-after"] for call in calls if call.is_over)
            site.may_answer.set()
            assert [(await call.over()).status for call in calls].count(200) == of_two

    run(story)


def test_who_waits_for_a_place_gets_it_when_one_is_free() -> None:
    async def story() -> None:
        site = Site(capacity={"working": 1, "working_each": 1, "queue": 8, "queue_seconds": 20.0})
        site.may_answer.clear()
        calls = [site.call("GET", ADMIN, "admin") for _ in range(3)]
        await site.until_inside(1)
        probe = site.call("GET", "/healthz")
        await site.until_inside(2)
        site.may_answer.set()
        assert {(await call.over()).status for call in (*calls, probe)} == {200}

    run(story)


def test_a_drain_ends_what_waits_and_lets_in_nothing_that_would() -> None:
    async def story() -> None:
        site = Site()

        async def begin(send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            await asyncio.sleep(600)

        site.answer = begin
        watch = site.call("GET", "/api/v1/watch", "admin")
        async with asyncio.timeout(20):
            while len(watch.sent) < 2:
                await asyncio.sleep(0)
        site.answer = None
        site.may_answer.clear()
        poll = site.call("GET", "/api/v1/nodes/n1/assignment", "node")
        short = site.call("GET", ADMIN, "admin")
        await site.until_inside(3)
        assert read_metric('open_long_requests{lane="assignment"}') == 1
        site.gate.drain()
        assert ((await poll.over()).status, poll.headers["connection"]) == (503, "close")
        assert poll.detail == "the server is shutting down"
        assert ((await watch.over()).body, watch.sent[-1].get("more_body", False)) == (b"one", False)
        assert short.sent == []
        assert read_metric('open_long_requests{lane="assignment"}') == 0
        assert (await site.ask("GET", "/api/v1/watch", "admin")).status == 503
        site.may_answer.set()
        assert (await short.over()).status == 200

    run(story)


def test_a_request_that_somebody_else_cancels_is_not_answered() -> None:
    async def story() -> None:
        site = Site()
        site.may_answer.clear()
        call = site.call("GET", "/api/v1/watch", "admin")
        await site.until_inside(1)
        assert call.task
        call.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call.task
        assert call.sent == []

    run(story)


@pytest.mark.parametrize("ended", [True, False])
def test_an_application_that_fails_is_answered_for_unless_it_has_answered(ended: bool) -> None:
    async def story() -> None:
        site = Site()

        async def fail(send: Send) -> None:
            await send({"type": "http.response.start", "status": 418, "headers": []})
            if ended:
                await send({"type": "http.response.body", "body": b"told"})
            raise RuntimeError("broke off")

        site.answer = fail
        call = await site.ask("GET", ADMIN, "admin")
        assert call.status == (418 if ended else 500)
        assert [message["type"] for message in call.sent].count("http.response.start") == 1

        async def break_off(send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"one", "more_body": True})
            raise RuntimeError("broke off")

        site.answer = break_off
        watch = await site.ask("GET", "/api/v1/watch", "admin")
        assert (watch.status, watch.body) == (200, b"one"), "half of an answer is not ended as if it were all of it"

    run(story)


@pytest.mark.parametrize(
    ("headers", "closes"),
    [
        ({}, False),
        ({"content_length": "0"}, False),
        ({"content_length": "65536"}, False),
        ({"content_length": "65537"}, True),
        ({"transfer_encoding": "chunked"}, True),
    ],
)
def test_a_refusal_closes_the_connection_where_much_of_a_body_is_unread(headers: dict[str, Any], closes: bool) -> None:
    async def story() -> None:
        call = await Site().ask("POST", "/api/v1/apply", **headers)
        assert call.status == 401
        assert (call.headers.get("connection") == "close") is closes

    run(story)


def test_a_body_that_is_too_slow_closes_the_connection() -> None:
    async def story() -> None:
        call = await Site({"body_seconds": 0.01}).ask("POST", "/api/v1/apply", "admin", b"")
        assert (call.status, call.headers["connection"]) == (408, "close")

    run(story)


@pytest.mark.parametrize(("who", "share"), [("admin", "unsent_bytes_each"), ("", "anonymous_unsent_bytes_each")])
def test_a_caller_who_reads_too_little_loses_its_oldest_answer_and_no_other_does(who: str, share: str) -> None:
    async def story() -> None:
        site = Site(capacity={share: 3 * 100_000})

        async def answer(send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": bytes(bytearray(100_000))})  # of its own

        site.answer = answer
        path = ADMIN if who else "/healthz"
        site.may_answer.clear()
        calls = [site.call("GET", path, who, peer="10.0.0.1") for _ in range(4)]
        await site.until_inside(4)
        for call in calls:
            call.reads.clear()
        site.may_answer.set()
        await site.until_inside(0)
        await calls[0].over()
        assert read_metric("unsent_answer_bytes") == (300_000 if who else 0)
        assert [bool(call.task and call.task.done()) for call in calls] == [True, False, False, False]
        for call in calls:
            call.reads.set()
        assert [len((await call.over()).body) for call in calls] == [0, 100_000, 100_000, 100_000]

    run(story)


def test_only_requests_of_http_are_answered_and_the_end_ends_what_the_gate_has_started() -> None:
    async def story() -> None:
        site, sent = Site(), list[Message]()

        async def send(message: Message) -> None:
            sent.append(message)

        await site.gate({"type": "websocket"}, asyncio.Queue[Message]().get, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]
        before = read_metric("requests_in_flight")
        site.may_answer.clear()
        call = site.call("GET", "/healthz")
        await site.until_inside(1)
        assert read_metric("requests_in_flight") == before + 1
        site.may_answer.set()
        await call.over()
        assert read_metric("requests_in_flight") == before
        with pytest.raises(RuntimeError, match="broke off"):
            await site.gate({"type": "lifespan"}, asyncio.Queue[Message]().get, send)
        assert (await site.ask("GET", ADMIN, "admin")).status == 500, "nobody looks at tokens any more"
        assert (await site.ask("GET", "/nodes", cookie=f"gpuwright={token('admin')}")).status == 500

    run(story)
