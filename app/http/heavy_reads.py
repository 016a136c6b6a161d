"""Hands heavy reads to a process of lower priority once there are many: otherwise node reports wait for them.

Requests in one process share one interpreter. A viewer who asks again and again for what takes a tenth of a second
would delay every report by as much.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from starlette.types import ASGIApp, Receive, Scope, Send

from app.access import Principal
from app.http import cookies, logs
from app.http.errors import unavailable
from app.http.lanes import KIB, lane_of_scope
from app.http.visit import RouteName
from app.settings import Settings
from app.worker.process import WorkerProcess

MODULE = "app.reader"
EXPLAIN = "/api/v1/explain/"  # has a process of its own
MOST_AT_ONCE = 4  # and connections to the database
WINDOW_SECONDS = 10.0
MOST_SECONDS = 1.0  # that the heavy reads of a window take in this process; with more the other one starts
REST_SECONDS = 30.0  # after the process died
IDLE_SECONDS = 600.0  # then the process ends: it takes as much memory as the server
LATE_SECONDS = 120.0  # longer than any statement may take
MOST_ORDER_BYTES = 8 * KIB  # all orders at once fit into the pipe, so that the event loop never waits for the process
PASSED_ON = ("type", "asgi", "http_version", "scheme", "server", "client", "root_path", "method", "path", "raw_path",
             "query_string")  # fmt: skip
# All that the routes look at; no secrets.
HEADERS = frozenset({b"accept", b"accept-encoding", b"host", b"x-forwarded-proto"})

JUST_ENDED = "the process that answers this request has just ended; send it again shortly"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ReadOrder:
    """A request for the reading process."""

    number: int
    scope: Scope
    principal: Principal
    request_id: str


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """Its answer; a status of 0 means that it has none."""

    number: int
    status: int = 0
    headers: tuple[tuple[bytes, bytes], ...] = ()
    body: bytes = b""
    path_format: str = ""


# From a process that ended. The read is not repeated in the server: what ended that process could end this one.
NEVER = ReadAnswer(0)


class HeavyReads:
    """Lies between gate and routes; has heavy reads answered by the other process while there is one."""

    def __init__(self, app: ASGIApp, settings: Settings, most_seconds: float = MOST_SECONDS) -> None:
        self._app = app
        self._most_seconds = most_seconds
        self.reader = ReadingProcess(settings)
        self._spent: deque[tuple[float, float]] = deque()  # when a read ended here, and its seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                self.reader.close()
        elif not _is_heavy(scope):
            await self._app(scope, receive, send)
        elif answer := await self.reader.ask(scope):
            scope["route"] = RouteName(answer.path_format)
            await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
            await send({"type": "http.response.body", "body": answer.body})
        else:
            began = time.monotonic()
            try:
                await self._app(scope, receive, send)
            finally:
                self._note(began, time.monotonic())

    def _note(self, began: float, ended: float) -> None:
        """Starts the other process if the reads of the last seconds took too long."""
        self._spent.append((ended, ended - began))
        while self._spent[0][0] < ended - WINDOW_SECONDS:
            self._spent.popleft()
        if sum(seconds for _, seconds in self._spent) > self._most_seconds:
            self.reader.start()


class ReadingProcess:
    """The other process. Its orders go out from the event loop; a thread takes in its answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = replace(settings, pool_size=min(settings.pool_size, MOST_AT_ONCE), reserved_pool_size=1)
        self._process: WorkerProcess | None = None
        self._is_ready = False
        self._number = 0
        self._answers: dict[int, asyncio.Future[ReadAnswer]] = {}  # of the orders that it works on
        self._not_before = 0.0
        self._last_order = 0.0

    @property
    def pid(self) -> int:
        """Returns the id of the process that answers; 0 if there is none."""
        return self._process.pid if self._process and self._is_ready else 0

    @property
    def working(self) -> int:
        """Returns how many orders it works on."""
        return len(self._answers)

    def start(self) -> None:
        """Starts the process, unless it runs or died just now; returns before it is ready."""
        if self._process is not None or time.monotonic() < self._not_before:
            return
        try:
            self._process = process = WorkerProcess("the reading process", [MODULE], os.environ, stderr=logs.output())
        except OSError as error:
            self._not_before = time.monotonic() + REST_SECONDS
            log.warning("reading_process_not_started", extra={"error": str(error)})
            return
        receive = partial(self._receive, process, asyncio.get_running_loop())
        threading.Thread(target=receive, name="heavy reads", daemon=True).start()

    async def ask(self, scope: Scope) -> ReadAnswer | None:
        """Returns the answer to a request; None if it is to be answered here."""
        process = self._process
        if process is None or not self.pid or self.working >= MOST_AT_ONCE:
            return None
        self._number += 1
        order = pickle.dumps(_order(self._number, scope), pickle.HIGHEST_PROTOCOL)
        if len(order) > MOST_ORDER_BYTES:
            return None
        self._last_order = time.monotonic()
        answer: asyncio.Future[ReadAnswer] = asyncio.get_running_loop().create_future()
        self._answers[self._number] = answer
        try:
            process.send_pickled(order)
            async with asyncio.timeout(LATE_SECONDS):
                # Shielded: an order whose caller has left is still in work.
                found = await asyncio.shield(answer)
        except (OSError, ValueError) as error:  # ValueError: the pipe was closed on our side
            self._end(process)
            raise unavailable(JUST_ENDED) from error
        if found is NEVER:
            raise unavailable(JUST_ENDED)
        return found if found.status else None

    def close(self) -> None:
        """Ends the process, if there is one, for good."""
        self._not_before = float("inf")
        if self._process:
            self._end(self._process)

    def _end(self, process: WorkerProcess) -> None:
        self._is_ready = False  # it takes no orders from here on
        process.kill()

    def _receive(self, process: WorkerProcess, loop: asyncio.AbstractEventLoop) -> None:
        """Takes in answers until the process ends."""
        try:
            process.send(self._settings)
            process.receive()  # it is ready
            loop.call_soon_threadsafe(self._ready, process, loop)
            while True:
                loop.call_soon_threadsafe(self._take, process.receive())
        except Exception as error:  # whatever it is: no answer comes after it
            status = process.end()
            with suppress(RuntimeError):  # the loop is closed: the server has stopped
                loop.call_soon_threadsafe(self._note_end, status, error)

    def _ready(self, process: WorkerProcess, loop: asyncio.AbstractEventLoop) -> None:
        if self._not_before == float("inf"):
            return
        log.info("reading_process_started", extra={"pid": process.pid})
        self._is_ready = True
        self._last_order = time.monotonic()
        self._end_if_idle(process, loop)

    def _take(self, answer: ReadAnswer) -> None:
        waiting = self._answers.pop(answer.number)
        if not waiting.done():
            waiting.set_result(answer)

    def _note_end(self, status: int, error: Exception) -> None:
        is_wanted = not self._is_ready and not self._answers
        log.log(
            logging.INFO if is_wanted else logging.WARNING,
            "reading_process_ended",
            extra={"status": status, "error": repr(error), "unanswered": self.working},
        )
        self._process, self._is_ready = None, False
        self._not_before = max(self._not_before, time.monotonic() + REST_SECONDS)
        answers, self._answers = self._answers, {}
        for waiting in answers.values():
            if not waiting.done():
                waiting.set_result(NEVER)

    def _end_if_idle(self, process: WorkerProcess, loop: asyncio.AbstractEventLoop) -> None:
        if process is not self._process or not self._is_ready:
            return
        left = self._last_order + IDLE_SECONDS - time.monotonic()
        if left > 0 or self._answers:
            loop.call_later(max(left, 1.0), self._end_if_idle, process, loop)
        else:
            self._end(process)


def _is_heavy(scope: Scope) -> bool:
    """Returns whether a request may go to the other process. Visitors without a session only get sent to the door."""
    path = scope["path"]
    return (
        scope["method"] == "GET"
        and lane_of_scope(scope).heavy
        and not path.startswith(EXPLAIN)
        and scope["state"]["principal"] is not None
    )


def _order(number: int, scope: Scope) -> ReadOrder:
    passed_on = {name: scope[name] for name in PASSED_ON if name in scope}
    headers = [(name, value) for name, value in scope["headers"] if name in HEADERS]
    headers += [(b"cookie", f"{cookies.ZONE}={zone}".encode())] if (zone := cookies.zone_of(scope)) else []
    state = scope["state"]
    return ReadOrder(number, passed_on | {"headers": headers}, state["principal"], state["request_id"])
