"""One HTTP client for all verbs: requests with safe retries, pages of lists, and event streams."""

from __future__ import annotations

import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from agents.host.plaintext import plaintext_refusal
from cli.currency import HEADER, read_currency
from cli.exits import UNREACHABLE, Failed
from cli.output import plain
from cli.talk.contexts import ServerContext, reason
from cli.talk.refusals import refusal

FILES_MEDIA = "application/vnd.gpuwright.files+json"
TRIES = 5
MOST_ANSWER_BYTES = 256 * 2**20  # of one answer, which is read into memory
RETRY_SECONDS = 30.0  # all waiting between the tries of one request
BUSY = {429, 502, 503, 504}
PAGE = 500


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """The answer of the server."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def json(self) -> Any:
        """Returns the decoded body if its content type is JSON, else None."""
        if "json" not in self.headers.get("content-type", ""):
            return None
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class Unreachable(Exception):
    """No answer came; `refused` means that trying again is of no use, `absent` also that no server was found there."""

    def __init__(self, message: str, *, refused: bool = False, absent: bool = False) -> None:
        super().__init__(message)
        self.refused, self.absent = refused or absent, absent


class ApiClient:
    """Talks to one server with one token. Not for use by several threads."""

    def __init__(
        self, connection: ServerContext, sleep: Callable[[float], None] = time.sleep, tries: int = TRIES
    ) -> None:
        self.connection = connection
        self.currency = ""  # of the money in the answers so far; empty: not known
        self._sleep = sleep
        self._tries = tries
        self._open: http.client.HTTPConnection | None = None
        parts = urlsplit(connection.server)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1 or parts.username:
            raise Failed(f"server {connection.server!r} is not an address: use http(s)://HOST[:PORT]")
        if connection.token and (refusal := plaintext_refusal(connection.server)):
            raise Failed(refusal)
        self._secure = parts.scheme == "https"
        self._host, self._port, self._prefix = parts.hostname, port, parts.path.rstrip("/")

    def __enter__(self) -> ApiClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the open connection."""
        if self._open is not None:
            self._open.close()
            self._open = None

    def get(self, path: str, query: Mapping[str, Any] | None = None, tries: int | None = None) -> Any:
        """Returns the JSON at `path`."""
        return self.send("GET", path, query, tries=tries).json()

    def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        media: str = "application/json",
        headers: Mapping[str, str] | None = None,
        tries: int | None = None,
    ) -> ServerAnswer:
        """Returns the answer of a successful request; raises Failed for any other."""
        answer = self._accept(self.attempt(method, path, query, body, media, headers, tries))
        if not isinstance(answer.json(), dict):
            raise self._no_gpuwright(answer, "JSON")
        return answer

    def text(self, path: str, query: Mapping[str, Any], media: str) -> str:
        """Returns the text at `path`, which must have this media type."""
        answer = self._accept(self.attempt("GET", path, query))
        if answer.headers.get("content-type", "").partition(";")[0] != media:
            raise self._no_gpuwright(answer, media)
        return answer.body.decode(errors="replace")

    def _accept(self, answer: ServerAnswer) -> ServerAnswer:
        if answer.status >= 400:
            raise refusal(answer.status, answer.headers, answer.json(), self.connection)
        return answer

    def _no_gpuwright(self, answer: ServerAnswer, wanted: str) -> Failed:
        moved = answer.headers.get("location", "")
        what = f"points to {moved}" if moved else f"answered {answer.status} without {wanted}"
        return Failed(f"{self.connection.server} {what}: is it a gpuwright server?", UNREACHABLE)

    def attempt(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: bytes | None = None,
        media: str = "application/json",
        headers: Mapping[str, str] | None = None,
        tries: int | None = None,
    ) -> ServerAnswer:
        """Returns any answer, refusals included. All tries of a write carry the same idempotency key."""
        tries = tries or self._tries
        sent = {**self._headers(), **(headers or {})}
        if body is not None:
            sent["Content-Type"] = media
        if method != "GET":
            sent["Idempotency-Key"] = os.urandom(16).hex()
        target = self.target(path, query)
        waited, started = 0.0, time.monotonic()
        for attempt in range(1, tries + 1):
            try:
                answer = self._exchange(method, target, body, sent)
                if answer.status not in BUSY:
                    return answer
                pause = max(_seconds(answer.headers.get("retry-after")), _backoff(attempt))
                failure: Unreachable | None = None
            except Unreachable as error:
                if error.refused and attempt == 1:  # no server listens there: waiting does not help
                    raise self.unreachable(error) from None
                failure, pause = error, _backoff(attempt)
            spent = max(waited, time.monotonic() - started)  # a request without an answer took time, too
            if attempt == tries or spent + pause > RETRY_SECONDS:
                break
            self.note(f"# {failure or f'answered {answer.status}'}; trying again in {pause:.1f} s")
            self._sleep(pause)
            waited += pause
        if failure is not None:
            raise self.unreachable(failure) from None
        return answer

    def pages(self, path: str, query: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yields the pages of the list at `path`."""
        cursor = None
        while True:
            page = self.get(path, {"limit": PAGE, **query, "cursor": cursor})
            yield page
            cursor = page["metadata"].get("next")
            if not cursor:
                return

    def stream(self, path: str, query: Mapping[str, Any], silence_seconds: float) -> http.client.HTTPResponse:
        """Opens an event stream on its own connection; reads time out after `silence_seconds`."""
        target = self.target(path, query)
        self.note(f"> GET {self.connection.server}{target}")
        connection = self._connect(silence_seconds)
        try:
            connection.request("GET", target, headers={**self._headers(), "Accept": "text/event-stream"})
            response = connection.getresponse()
            self.note(f"< {response.status}")
            if response.status == 200:
                self.currency = read_currency(response.getheader(HEADER, "")) or self.currency
                return response
            answer = self._read(response)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._failure(error) from None
        connection.close()
        if answer.status in BUSY:
            raise Unreachable(f"answered {answer.status}")
        raise refusal(answer.status, answer.headers, answer.json(), self.connection)

    def target(self, path: str, query: Mapping[str, Any] | None) -> str:
        """Returns path and query as sent, without None and empty values."""
        given = {name: value for name, value in (query or {}).items() if value not in (None, "", [])}
        words = {name: str(v).lower() if isinstance(v, bool) else v for name, v in given.items()}
        encoded = urlencode(words, doseq=True)  # a list repeats its name
        return self._prefix + path + (f"?{encoded}" if encoded else "")

    def note(self, line: str) -> None:
        """Prints a line with `-v`."""
        if self.connection.verbose:
            print(plain(line), file=sys.stderr)

    def unreachable(self, error: Unreachable) -> Failed:
        """Returns the failure that names the server and the next step."""
        local = self._host in ("127.0.0.1", "localhost", "::1")
        step = ""
        if error.absent:
            step = "start it with: gpuwright up" if local else "is the address right? see: gpuwright config contexts"
            step = f"; {step}"
        return Failed(f"cannot reach {self.connection.server}: {error}{step}", UNREACHABLE)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "gpuwright-cli"}
        if self.connection.token:
            headers["Authorization"] = f"Bearer {self.connection.token}"
        return headers

    def _exchange(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> ServerAnswer:
        self.note(f"> {method} {self.connection.server}{target}" + (f" ({len(body)} bytes)" if body else ""))
        started = time.monotonic()
        reused = self._open is not None
        connection = self._open or self._connect(self.connection.request_seconds)
        self._open = connection
        try:
            try:
                connection.request(method, target, body=body, headers=dict(headers))
            except (BrokenPipeError, ConnectionResetError):
                if not body:
                    raise
                # the server refused the body before it was sent whole: its answer says why
            answer = self._read(connection.getresponse())
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if reused and isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                # the server had closed an idle connection: sending again is safe
                return self._exchange(method, target, body, headers)
            raise self._failure(error) from None
        took_ms = (time.monotonic() - started) * 1000
        self.currency = read_currency(answer.headers.get(HEADER, "")) or self.currency
        request_id = answer.headers.get("x-request-id", "")
        self.note(f"< {answer.status} {len(answer.body)} bytes, {took_ms:.0f} ms {request_id}")
        if answer.headers.get("connection", "").lower() == "close":
            self.close()
        return answer

    def _read(self, response: http.client.HTTPResponse) -> ServerAnswer:
        headers = {name.lower(): value for name, value in response.getheaders()}
        body = response.read(MOST_ANSWER_BYTES + 1)
        if len(body) > MOST_ANSWER_BYTES:
            self.close()
            most = f"{MOST_ANSWER_BYTES >> 20} MB"
            raise Failed(f"{self.connection.server} answered more than {most}: is it a gpuwright server?", UNREACHABLE)
        if response.length:  # `read` with a number does not complain of what is missing
            raise http.client.IncompleteRead(body, response.length)
        return ServerAnswer(response.status, headers, body)

    def _connect(self, timeout_seconds: float) -> http.client.HTTPConnection:
        if not self._secure:
            return http.client.HTTPConnection(self._host, self._port, timeout=timeout_seconds)
        import ssl

        try:
            trust = ssl.create_default_context(cafile=self.connection.ca_file or None)
        except OSError as error:
            raise Failed(f"cannot read the CA file {self.connection.ca_file}: {reason(error)}") from None
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_seconds, context=trust)

    def _failure(self, error: Exception) -> Unreachable:
        if isinstance(error, ConnectionRefusedError):
            return Unreachable("connection refused", absent=True)
        if isinstance(error, TimeoutError):
            return Unreachable(f"no answer within {self.connection.request_seconds:g} s")
        if isinstance(error, socket.gaierror):
            return Unreachable(f"the host name {self._host} cannot be resolved", absent=True)
        if type(error).__name__ == "SSLCertVerificationError":
            why = getattr(error, "verify_message", "") or "it cannot be verified"
            return Unreachable(
                f"its certificate is not trusted ({why}); set its CA with: gpuwright config set NAME --ca-file FILE",
                refused=True,
            )
        if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER":
            plaintext = self.connection.server.replace("https://", "http://", 1)
            return Unreachable(f"the server there speaks http and not https; use {plaintext}", refused=True)
        if isinstance(error, http.client.RemoteDisconnected | http.client.IncompleteRead):
            return Unreachable("the server closed the connection before it sent the whole answer")
        if isinstance(error, http.client.BadStatusLine):
            return Unreachable("the server there does not speak HTTP", refused=True)
        return Unreachable(reason(error))


def _seconds(retry_after: str | None) -> float:
    try:
        return max(0.0, float(retry_after or 0))
    except ValueError:  # an HTTP date: our server never sends one
        return 1.0


def _backoff(attempt: int) -> float:
    return float(0.2 * 2 ** (attempt - 1)) * (1 + int(os.urandom(1)[0]) / 510)  # randomised, so that clients spread out
