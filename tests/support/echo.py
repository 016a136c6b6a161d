"""HTTP servers that answer every request with their own port and the request's path.

`?ms=50` takes that long, `?held` until somebody asks the port for `/__release`; `/__count` says how many other
requests the port has had, and `/__end` ends the port at once, with all its connections.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from functools import partial

requests: dict[int, int] = {}
held: dict[int, list[Callable[[], None]]] = {}
servers: dict[int, asyncio.Server] = {}
connections: dict[int, set[asyncio.Transport]] = {}


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, port: int, delay_seconds: float) -> None:
        self.port = port
        self.delay_seconds = delay_seconds
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        connections[self.port].add(transport)

    def connection_lost(self, _: Exception | None) -> None:
        connections[self.port].discard(self.transport)

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, whole, rest = self.received.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0].strip() or b"0"
        if not whole or len(rest) < int(length):
            return
        self.received = b""
        path = head.split(b" ", 2)[1]
        if path == b"/__count":
            self._answer(b"%d" % requests[self.port], True)
            return
        if path == b"/__end":
            servers[self.port].close()
            for each in connections[self.port] - {self.transport}:
                each.abort()
            self._answer(path, True)
            return
        if path == b"/__release":
            while held[self.port]:
                held[self.port].pop()()
            self._answer(path, True)
            return
        requests[self.port] += 1
        if path.endswith(b"?held"):
            held[self.port].append(partial(self._answer, path, True))
            return
        wanted = path.partition(b"?ms=")[2]
        seconds = float(wanted) / 1000 if wanted else self.delay_seconds
        asyncio.get_running_loop().call_later(seconds, self._answer, path, b"connection: close" in head.lower())

    def _answer(self, path: bytes, closing: bool) -> None:
        if self.transport.is_closing():
            return
        body = b"%d %s" % (self.port, path)
        status = b"503 Service Unavailable" if b"/broken" in path else b"200 OK"
        more = b"Connection: close\r\n" if closing else b""
        self.transport.write(b"HTTP/1.1 %s\r\n%sContent-Length: %d\r\n\r\n%s" % (status, more, len(body), body))
        if closing:
            self.transport.close()


async def serve(delay_seconds: float, host: str, ports: list[int]) -> None:
    loop = asyncio.get_running_loop()
    for port in ports:
        requests[port], held[port], connections[port] = 0, [], set()
        servers[port] = await loop.create_server(partial(_Connection, port, delay_seconds), host, port, backlog=512)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    done = asyncio.Event()
    loop.add_reader(sys.stdin.fileno(), done.set)  # the parent is gone
    await done.wait()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1]) / 1000, sys.argv[2], [int(word) for word in sys.argv[3:]]))
