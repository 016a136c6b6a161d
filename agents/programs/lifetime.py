"""The life of a model server's process: it listens, loads its model, serves, and exits once drained."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

# asyncio runs without TLS, which no one uses on loopback. Importing it would cost each of a node's forty servers
# 4 MB and a quarter of its start. A backend may import it afterwards.
_HIDDEN = "ssl" not in sys.modules
if _HIDDEN:
    sys.modules["ssl"] = None  # type: ignore[assignment]
import asyncio  # noqa: E402

if _HIDDEN:
    del sys.modules["ssl"]


class DrainableServer(Protocol):
    """A server that ends by itself once it is drained."""

    def accept(self) -> asyncio.BaseProtocol: ...

    def loaded(self) -> None: ...

    def drain(self) -> None: ...

    def summary(self) -> str:
        """Returns what it has answered, for the last line of the log."""


class LoadedDevice(Protocol):
    """The hardware that a server computes on."""

    def load(self) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The name and the address of a server's process."""

    program: str
    host: str
    port: int
    start_seconds: float  # that it takes to load besides the device's own time

    def say(self, text: str) -> None:
        """Logs a line. The server outlives the reader of its log, and keeps no buffer that could fail at exit."""
        with contextlib.suppress(OSError):
            os.write(2, f"{self.program}: {text}\n".encode())


def new_loop() -> asyncio.AbstractEventLoop:
    """Returns a loop for a few hundred connections: select() keeps time to the microsecond, epoll to the millisecond,
    which is a tenth of a short iteration."""
    return asyncio.SelectorEventLoop(selectors.SelectSelector())


def run(
    loop: asyncio.AbstractEventLoop,
    process: ServerProcess,
    device: LoadedDevice,
    make_server: Callable[[Callable[[], None], Callable[[], None]], DrainableServer],
) -> int:
    """Serves until drained, closes the loop, and returns the exit code.

    The server is made of two calls: the first ends listening, the second the process.
    """
    try:
        return loop.run_until_complete(_serve(loop, process, device, make_server))
    finally:
        loop.close()


async def _serve(
    loop: asyncio.AbstractEventLoop,
    process: ServerProcess,
    device: LoadedDevice,
    make_server: Callable[[Callable[[], None], Callable[[], None]], DrainableServer],
) -> int:
    ended: asyncio.Future[int] = loop.create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    def listen_no_more() -> None:
        listener.close()

    server = make_server(listen_no_more, lambda: end(0))
    try:
        listener = await loop.create_server(server.accept, process.host, process.port, backlog=100)
    except OSError as error:
        process.say(f"cannot listen on {process.host}:{process.port}: {error.strerror or error}")
        return 1
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, server.drain)
    process.say(f"listening on {process.host}:{listener.sockets[0].getsockname()[1]}")

    def load() -> None:
        problem = ""
        try:
            device.load()
        except Exception as error:
            problem = f"cannot load: {error}"
        with contextlib.suppress(RuntimeError):  # drained meanwhile: the loop is closed
            loop.call_soon_threadsafe(loaded, problem)

    def loaded(problem: str) -> None:
        if problem:
            process.say(problem)
            end(1)
        else:
            loop.call_later(process.start_seconds, ready)

    def ready() -> None:
        server.loaded()
        process.say("ready")

    threading.Thread(target=load, name="load", daemon=True).start()
    code = await ended
    listener.close()
    device.close()
    process.say(f"{'drained' if code == 0 else 'failed'} after {server.summary()}")
    return code
