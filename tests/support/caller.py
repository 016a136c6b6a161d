"""A client that keeps its connection, and opens another when that one is gone."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from tests.support.patience import patience
from tests.support.server import Reply


class NoAnswer(Exception):
    """The connection ended without an answer: the write may have happened or not."""


class Caller:
    """One keep-alive connection with one token."""

    def __init__(self, port: int, token: str, timeout_seconds: float | None = None) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout_seconds or patience())
        self._token = token

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        """One request; NoAnswer when the connection ends first."""
        sent = {"Authorization": f"Bearer {self._token}"} | dict(headers or {})
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        try:
            with suppress(BrokenPipeError, ConnectionResetError):  # it may have answered before it had all
                self._connection.request(method, path, body, sent)
            answer = self._connection.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            raise NoAnswer(repr(error)) from error
        return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)

    def drop(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        """Send a request and hang up without waiting for its answer."""
        sent = {"Authorization": f"Bearer {self._token}"} | dict(headers or {})
        if body is not None and not isinstance(body, bytes | str):
            body = json.dumps(body)
            sent.setdefault("Content-Type", "application/json")
        with suppress(OSError, http.client.HTTPException):
            self._connection.request(method, path, body, sent)
        self._connection.close()

    def insist(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        pause_seconds: float = 0.05,
    ) -> Reply:
        """The same request until it is answered by something other than 503 and 429."""
        began = time.monotonic()
        while True:
            try:
                reply = self.ask(method, path, body, headers)
            except NoAnswer:
                reply = None
            if reply is not None and reply.status not in (429, 503):
                return reply
            assert time.monotonic() - began < patience(), f"{method} {path} hangs: {reply}"
            time.sleep(pause_seconds)

    def close(self) -> None:
        self._connection.close()


@contextmanager
def calling(port: int, token: str) -> Iterator[Caller]:
    caller = Caller(port, token)
    try:
        yield caller
    finally:
        caller.close()
