"""Wakes requests that wait for a new version of objects, assignments or tokens, whichever replica wrote it.

One thread in each process listens to Postgres. A notification is only a hint: the `version` table is read at least
once a second, and every 100 ms where notifications do not arrive (PgBouncer accepts LISTEN and delivers nothing).
So a lost notification costs latency and never correctness.
"""

from __future__ import annotations

import asyncio
import logging
import math
import selectors
import threading
import time
from collections.abc import Callable

import psycopg
from psycopg.rows import TupleRow

from app.store.database.pool import CONNECT_SECONDS, LINK

CHANNEL = "gpuwright"
POLL_SECONDS = 0.1
SAFETY_SECONDS = 1.0
PROBE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 2.0

READ_VERSIONS = "SELECT name, value FROM version"

log = logging.getLogger(__name__)

Waiters = dict["asyncio.Future[None]", tuple[int, asyncio.AbstractEventLoop]]


class Notices:
    """The newest version of each stream in the `version` table that this process knows."""

    def __init__(self, url: str, listen: bool) -> None:
        self._url = url.replace("postgresql+psycopg://", "postgresql://", 1)
        self._listen = listen
        self._versions: dict[str, int] = {}
        self._callbacks: dict[str, list[Callable[[int], None]]] = {}
        self._waiters: dict[str, Waiters] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self.listening = False  # True once a notification has arrived

    def start(self) -> None:
        """Starts the thread, which retries an unreachable database for ever."""
        self._thread = threading.Thread(target=self._run, name="notices", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread and wakes all waiting requests with what is known."""
        self._stopping.set()
        for name in list(self._waiters):
            self._release(name, everybody=True)
        if self._thread is not None:
            self._thread.join(timeout=5)

    def current(self, name: str) -> int:
        """Returns the newest version known here; 0 before the first read."""
        return self._versions.get(name, 0)

    def on_change(self, name: str, call: Callable[[int], None]) -> None:
        """Calls `call(version)` in the notices' thread after each change; it must be quick and not raise."""
        with self._lock:
            self._callbacks.setdefault(name, []).append(call)

    async def wait(self, name: str, after: int, timeout: float) -> int:
        """Returns the current version once it is above `after`, or after `timeout` seconds whatever it is."""
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[None] = loop.create_future()
        with self._lock:
            if self._versions.get(name, 0) > after or self._stopping.is_set():
                return self._versions.get(name, 0)
            self._waiters.setdefault(name, {})[woken] = (after, loop)
        try:
            await asyncio.wait_for(woken, timeout)
        except TimeoutError:
            pass
        finally:
            with self._lock:
                self._waiters[name].pop(woken, None)
        return self._versions.get(name, 0)

    def advance(self, name: str, version: int) -> None:
        """Takes in a version that was read: they only ever grow."""
        with self._lock:
            if version <= self._versions.get(name, -1):
                return
            callbacks = list(self._callbacks.get(name, ()))
        for call in callbacks:
            try:
                call(version)
            except Exception:
                log.exception("notices_callback_failed", extra={"stream": name})
        with self._lock:  # after the callbacks: a caller that knows the version may rely on them
            self._versions[name] = version
        self._release(name)

    def _release(self, name: str, everybody: bool = False) -> None:
        with self._lock:
            version = self._versions.get(name, 0)
            waiters = self._waiters.get(name, {})
            by_loop: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
            for future, (after, loop) in list(waiters.items()):
                if everybody or after < version:
                    del waiters[future]
                    by_loop.setdefault(loop, []).append(future)
        for loop, futures in by_loop.items():
            try:
                loop.call_soon_threadsafe(_resolve, futures)
            except RuntimeError:  # that loop is closed, and its requests are gone
                continue

    def _run(self) -> None:
        pause = POLL_SECONDS
        while not self._stopping.is_set():
            try:
                with self._connect() as listener, self._connect() as reader:
                    pause = POLL_SECONDS
                    self._follow(listener, reader)
            except psycopg.Error as error:
                log.warning("notices_database_away", extra={"error": str(error).strip()})
            except Exception:  # whatever it was: without this thread no waiting request would wake
                log.exception("notices_failed")
            self.listening = False
            self._stopping.wait(pause)
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    def _connect(self) -> psycopg.Connection[TupleRow]:
        return psycopg.connect(
            self._url, autocommit=True, connect_timeout=CONNECT_SECONDS, prepare_threshold=None, **LINK
        )

    def _follow(self, listener: psycopg.Connection[TupleRow], reader: psycopg.Connection[TupleRow]) -> None:
        """Reads through `reader` and listens through `listener`.

        The listener runs no queries: through a pooler, a connection that runs some receives notifications with their
        results, and would look like one that notifications reach. It polls until the first arrives, however late.
        """
        if self._listen:
            listener.execute(f"LISTEN {CHANNEL}")
            reader.execute("SELECT pg_notify(%s, 'probe')", [CHANNEL])
        # psycopg's own wait wakes ten times a second, which costs an idle process more than all else.
        with selectors.DefaultSelector() as arrivals:
            arrivals.register(listener, selectors.EVENT_READ)
            doubt_at = time.monotonic() + PROBE_SECONDS
            while not self._stopping.is_set():
                self._look(reader)
                until = time.monotonic() + (SAFETY_SECONDS if self.listening else POLL_SECONDS)
                while not self._stopping.is_set() and (rest := until - time.monotonic()) > 0:
                    # A short timeout, so that stop() returns soon. One read serves all notifications; their payload is
                    # ignored, because any role of the database may send one.
                    if arrivals.select(min(rest, 0.2)) and any(listener.notifies(timeout=0, stop_after=1)):
                        self.listening = True
                        self._look(reader)
                if not self.listening and time.monotonic() > doubt_at:
                    log.warning("notices_polling", extra={"reason": "LISTEN receives nothing on this connection"})
                    doubt_at = math.inf

    def _look(self, connection: psycopg.Connection[TupleRow]) -> None:
        for name, value in connection.execute(READ_VERSIONS):
            self.advance(name, value)


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
