"""An HTTP server in this process that keeps the head of every request as it came, and answers all of them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"


class Recorder:
    """One listening socket; each connection is asked once."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, name="recorder", daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                head = self._read_head(connection)
                if head:  # a check of health says nothing
                    self.heads.append(head)
                    self.may_answer.wait()
                    connection.sendall(ANSWER)

    def _read_head(self, connection: socket.socket) -> bytes:
        connection.settimeout(10)
        head = b""
        while b"\r\n\r\n" not in head:
            try:
                piece = connection.recv(65536)
            except OSError:
                return b""
            if not piece:
                return b""
            head += piece
        return head.partition(b"\r\n\r\n")[0]

    def close(self) -> None:
        self.may_answer.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


@contextmanager
def recording() -> Iterator[Recorder]:
    recorder = Recorder()
    try:
        yield recorder
    finally:
        recorder.close()
