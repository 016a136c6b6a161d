"""Heavy reads in a process of their own: the same answers, also when that process dies."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app.access import Principal, Scope
from app.http import heavy_reads
from app.http.heavy_reads import HeavyReads
from app.http.visit import route_of
from app.main import assemble
from app.problem import HttpProblem
from app.settings import Settings
from app.store.database.urls import libpq_url

pytestmark = pytest.mark.slow

VIEWER = Principal("viewer-1", Scope.VIEWER, "", "")
NODE = Principal("node-1", Scope.NODE, "", "n1")


@dataclass(frozen=True, slots=True)
class Asked:
    """An answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes
    route: str


class Asking:
    """Asks the routes, past the gate."""

    def __init__(self, reads: HeavyReads) -> None:
        self.reads = reads

    @property
    def pid(self) -> int:
        return self.reads.reader.pid

    async def ask(self, path: str, who: Principal | None = VIEWER, query: str = "") -> Asked:
        messages: list[Any] = []

        async def send(message: Any) -> None:
            messages.append(message)

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        scope: dict[str, Any] = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
            "headers": [(b"host", b"test")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
            "state": {"principal": who, "body": b"", "request_id": "r1"},
        }  # fmt: skip
        await self.reads(scope, receive, send)
        body = b"".join(message.get("body", b"") for message in messages[1:])
        return Asked(messages[0]["status"], dict(messages[0]["headers"]), body, route_of(scope))

    async def until_elsewhere(self) -> int:
        """Reads until the other process answers; returns its id."""
        while not self.pid:
            await self.ask("/api/v1/slo")
            await asyncio.sleep(0.05)
        return self.pid


SERVICE = """
    INSERT INTO object VALUES (gen_random_uuid(), 'Service', 'shop', 'a', '{}',
        '{"model": "m", "slo": {"latencyMs": 80, "percentile": 98}, "ratePerSecond": 9}', '{}', 1, 1, NULL, '{}',
        now(), now())
"""


@pytest.fixture
def asking(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Asking]:
    monkeypatch.setattr(heavy_reads, "REST_SECONDS", 0.0)
    with psycopg.connect(libpq_url(database_url)) as connection:
        connection.execute(SERVICE)
    settings = Settings(database_url=database_url, database_direct=True, pool_size=2)
    reads = HeavyReads(assemble(settings), settings, most_seconds=0.0)
    yield Asking(reads)
    reads.reader.close()


def test_the_other_process_answers_as_this_one_does(asking: Asking) -> None:
    questions = [
        ("/api/v1/slo", VIEWER, ""), ("/api/v1/slo", NODE, ""), ("/api/v1/slo", VIEWER, "tenent=shop"),
        ("/api/v1/slo", VIEWER, "tenant=shop"), ("/api/v1/overview", VIEWER, ""), ("/api/v1/plans", VIEWER, ""),
        ("/api/v1/reports/cost", VIEWER, ""), ("/", VIEWER, ""),
    ]  # fmt: skip

    async def run() -> None:
        here = [await asking.ask(*question) for question in questions]
        assert [answer.status for answer in here] == [200, 403, 400, 200, 200, 200, 200, 200]
        assert b"shop/a" in here[0].body
        process = await asking.until_elsewhere()
        there = [await asking.ask(*question) for question in questions]
        assert asking.pid == process
        assert [answer.status for answer in there] == [answer.status for answer in here]
        assert [answer.route for answer in there] == [answer.route for answer in here]
        assert [answer.body for answer in there[:4]] == [answer.body for answer in here[:4]]
        assert there[-1].headers.keys() == here[-1].headers.keys()

    asyncio.run(run())


def test_what_is_no_heavy_read_of_a_caller_never_leaves_the_server(asking: Asking) -> None:
    async def run() -> None:
        process = await asking.until_elsewhere()
        os.kill(process, signal.SIGSTOP)
        assert (await asking.ask("/", None)).status == 303
        assert (await asking.ask("/api/v1/events", VIEWER)).status == 200
        assert (await asking.ask("/api/v1/reports/" + "a" * 9000, VIEWER)).status == 404

    asyncio.run(run())


def test_a_read_is_refused_when_its_process_dies_and_others_are_answered_here(asking: Asking) -> None:
    async def run() -> None:
        first = await asking.until_elsewhere()
        os.kill(first, signal.SIGSTOP)
        waiting = [asyncio.create_task(asking.ask("/api/v1/slo")) for _ in range(heavy_reads.MOST_AT_ONCE)]
        while asking.reads.reader.working < heavy_reads.MOST_AT_ONCE:
            await asyncio.sleep(0.01)
        assert (await asking.ask("/api/v1/slo")).status == 200, "one more than the process takes"
        os.kill(first, signal.SIGKILL)
        for found in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(found, HttpProblem)
            assert found.status == 503
        assert not asking.pid
        assert (await asking.ask("/api/v1/slo")).status == 200
        assert await asking.until_elsewhere() != first

    asyncio.run(run())


def test_a_process_that_does_not_answer_is_ended(asking: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        first = await asking.until_elsewhere()
        os.kill(first, signal.SIGSTOP)
        monkeypatch.setattr(heavy_reads, "LATE_SECONDS", 0.1)
        with pytest.raises(HttpProblem, match="just ended"):
            await asking.ask("/api/v1/slo")
        monkeypatch.undo()
        monkeypatch.setattr(heavy_reads, "REST_SECONDS", 0.0)
        assert (await asking.ask("/api/v1/slo")).status == 200

    asyncio.run(run())


def test_an_idle_process_ends(asking: Asking) -> None:
    async def run() -> None:
        process = await asking.until_elsewhere()
        reader = asking.reads.reader
        assert reader._process
        reader._last_order -= heavy_reads.IDLE_SECONDS
        reader._end_if_idle(reader._process, asyncio.get_running_loop())
        assert not asking.pid
        while Path(f"/proc/{process}").exists():
            await asyncio.sleep(0.01)

    asyncio.run(run())


def test_the_process_ends_with_the_server(asking: Asking) -> None:
    """Its input ends when the server does, however that ends."""

    async def run() -> None:
        process = await asking.until_elsewhere()
        inner = asking.reads.reader._process
        assert inner
        assert inner._process.stdin
        inner._process.stdin.close()
        while Path(f"/proc/{process}").exists():
            await asyncio.sleep(0.01)

    asyncio.run(run())
