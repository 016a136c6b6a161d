"""Asks the API server over HTTPS with the pod's own token, which the kubelet renews in its file.

Own code over http.client: an agent makes a few requests a minute and watches two lists, and a client library of
Kubernetes takes three times the memory of the whole agent.
"""

from __future__ import annotations

import http.client
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import msgspec

from agents.host import deadline

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CONNECT_SECONDS = 10.0
ANSWER_SECONDS = 20.0
JSON, MERGE, STRATEGIC = "application/json", "application/merge-patch+json", "application/strategic-merge-patch+json"
LONGEST_EVENT = 4 << 20
BUSY = (429, 500, 502, 503, 504)  # the same request may be answered later

Object = dict[str, Any]


class ApiAway(Exception):
    """The API server did not answer, or what came is no answer."""


class ApiRefused(Exception):
    """The API server answered and refused."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


@dataclass(frozen=True, slots=True)
class Account:
    """A folder that the kubelet fills: the token of the pod's account, the server's certificate, the namespace."""

    folder: Path = ACCOUNT

    def token(self) -> str:
        return self._read("token")

    def namespace(self) -> str:
        return self._read("namespace")

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    def _read(self, name: str) -> str:
        try:
            return (self.folder / name).read_text().strip()
        except OSError as error:
            raise ApiAway(f"{self.folder / name} cannot be read: {error.strerror or error}") from error


class KubernetesApi:
    """The API server. Each request has a connection of its own, so any thread may ask."""

    def __init__(self, account: Account, server: str = "") -> None:
        parts = urlsplit(server or _server_of_pod())
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the API server {server!r} must look like https://10.0.0.1:443")
        self._host, self._port = parts.hostname, parts.port or 443
        self._account = account
        self.namespace = account.namespace()

    def get(self, path: str, seconds: float = ANSWER_SECONDS, **query: str) -> Any:
        return self._decode(self._request("GET", _add_query(path, query), seconds=seconds))

    def get_text(self, path: str, seconds: float = ANSWER_SECONDS, **query: str) -> bytes:
        """Returns an answer that is not JSON, such as a log; `seconds` are those of its connection, and of the rest."""
        return self._request("GET", _add_query(path, query), seconds=seconds)

    def create(self, path: str, body: Object) -> Any:
        return self._decode(self._request("POST", path, body))

    def patch(self, path: str, body: Object, kind: str = MERGE) -> Any:
        return self._decode(self._request("PATCH", path, body, kind))

    def delete(self, path: str, body: Object | None = None) -> None:
        self._request("DELETE", path, body)

    def watch(self, path: str, seconds: int, **query: str) -> Iterator[tuple[str, Object]]:
        """Yields events and their objects as they come, for at most `seconds`."""
        asked = _add_query(path, {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds)})
        with closing(self._connect()) as connection:
            try:
                connection.request("GET", asked, headers=self._headers())
                if connection.sock is not None:
                    connection.sock.settimeout(seconds + ANSWER_SECONDS)
                answer = connection.getresponse()
                if answer.status != 200:
                    raise ApiRefused(answer.status, _message(answer.read(deadline.MOST_BYTES)))
                while line := answer.readline(LONGEST_EVENT):
                    event = self._decode(line)
                    yield str(event.get("type", "")), event.get("object") or {}
            except (OSError, http.client.HTTPException) as error:
                raise ApiAway(self._say(error)) from error

    def _request(
        self, method: str, path: str, body: Object | None = None, kind: str = JSON, seconds: float = ANSWER_SECONDS
    ) -> bytes:
        sent = None if body is None else msgspec.json.encode(body)
        headers = {**self._headers(), "Content-Type": kind}
        with closing(self._connect(seconds)) as connection:
            try:
                status, _, text = deadline.exchange(connection, method, path, sent, headers, seconds)
            except (OSError, http.client.HTTPException) as error:
                raise ApiAway(self._say(error)) from error
        if not 200 <= status < 300:
            raise _refusal(status, text)
        return text

    def _headers(self) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self._account.token()}", "Accept": "application/json, */*"}

    def _connect(self, seconds: float = CONNECT_SECONDS) -> http.client.HTTPSConnection:
        try:
            trusted = ssl.create_default_context(cafile=str(self._account.authority))
        except OSError as error:
            raise ApiAway(f"{self._account.authority} holds no certificates: {error}") from error
        timeout = min(seconds, CONNECT_SECONDS)
        return http.client.HTTPSConnection(self._host, self._port, timeout=timeout, context=trusted)

    def _decode(self, text: bytes) -> Any:
        try:
            found = msgspec.json.decode(text)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ApiAway(f"{self._host}:{self._port} answered with something else than JSON") from error
        if not isinstance(found, dict):
            raise ApiAway(f"{self._host}:{self._port} answered with something else than an object")
        return found

    def _say(self, error: Exception) -> str:
        reason = deadline.printable(f"{type(error).__name__}: {error}")[:300]
        return f"the API server at {self._host}:{self._port} does not answer: {reason}"


def _server_of_pod() -> str:
    """Returns the server that the kubelet names to every pod."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST", ""), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ValueError("KUBERNETES_SERVICE_HOST is not set: --runtime pods runs in a pod of the cluster")
    return f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"


def _add_query(path: str, query: Mapping[str, str]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _refusal(status: int, text: bytes) -> ApiAway | ApiRefused:
    said = _message(text)
    return ApiAway(f"the API server answered {status}: {said}") if status in BUSY else ApiRefused(status, said)


def _message(text: bytes) -> str:
    try:
        found = msgspec.json.decode(text)
        said = found.get("message", "") if isinstance(found, dict) else ""
    except (msgspec.MsgspecError, ValueError, RecursionError):
        said = text[:300].decode(errors="replace")
    return deadline.printable(str(said))[:500]
