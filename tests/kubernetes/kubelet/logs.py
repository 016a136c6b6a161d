"""Serves what containers print, over HTTPS to the API server alone, so that `kubectl logs` shows it."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.certificates import Certificate

FindLog = Callable[[str, str, str, int], Path | None]  # of a namespace's pod, its container, and how many runs ago


class LogServer(ThreadingHTTPServer):
    """Listens on loopback; the API server shows its certificate."""

    daemon_threads = True

    def __init__(self, files: Certificate, find_log: FindLog) -> None:
        super().__init__(("127.0.0.1", 0), _LogHandler)
        self.find_log = find_log
        trusted = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.certificate))
        trusted.verify_mode = ssl.CERT_REQUIRED
        trusted.load_cert_chain(files.certificate, files.key)
        self.socket = trusted.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        self._thread = Thread(target=self.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _LogHandler(BaseHTTPRequestHandler):
    server: LogServer

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        words = {name: values[0] for name, values in parse_qs(asked.query).items()}
        parts = asked.path.strip("/").split("/")
        log = None
        if len(parts) == 4 and parts[0] == "containerLogs":
            _, namespace, pod, container = parts
            log = self.server.find_log(namespace, pod, container, int(words.get("previous") == "true"))
        if log is None:
            self.send_error(404)
            return
        said = cut(log.read_bytes(), words.get("tailLines"), words.get("limitBytes"))
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_: object) -> None:
        pass


def cut(said: bytes, lines: str | None, most_bytes: str | None) -> bytes:
    """Returns the last lines, and of these the first bytes, as a kubelet does."""
    if lines is not None:
        said = b"".join(said.splitlines(keepends=True)[-int(lines) :]) if int(lines) else b""
    return said[: int(most_bytes)] if most_bytes else said
