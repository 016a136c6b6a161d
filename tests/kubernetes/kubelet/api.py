"""What a kubelet asks of the API server: objects, changes of them, and a watch that another thread may end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from clusters.kubeconfigs import choose_cluster, connect

Resource = dict[str, Any]
Away = httpx2.TransportError  # the server does not answer
STRATEGIC = "application/strategic-merge-patch+json"  # merges conditions by their type, so that nobody's is lost
MERGE = "application/merge-patch+json"


class Expired(Exception):
    """The version that a watch begins with is forgotten, or the server has ended it."""


class Api:
    """Of one user; any thread may use it."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = connect(choose_cluster(None, str(kubeconfig), {}))
        self._watched: socket.socket | None = None

    @property
    def address(self) -> tuple[str, int]:
        url = self._client.base_url
        return url.host, url.port or 443

    def get(self, path: str, **asked: str) -> Resource | None:
        return self._ask("GET", path, params=asked)

    def create(self, path: str, body: Resource) -> Resource | None:
        """Returns what is made; None where it is there already."""
        return self._ask("POST", path, json=body)

    def patch(self, path: str, body: Resource, kind: str = STRATEGIC) -> Resource | None:
        """Returns what it is then; None if it is gone, or another one has its name."""
        return self._ask("PATCH", path, content=json.dumps(body), headers={"Content-Type": kind})

    def delete(self, path: str, body: Resource) -> None:
        self._ask("DELETE", path, content=json.dumps(body), headers={"Content-Type": "application/json"})

    def watch(self, path: str, version: str, **asked: str) -> Iterator[tuple[str, Resource]]:
        """Yields each change: its kind, and what it is then. It ends when the server wants, or at `end_watch`."""
        wanted = {"watch": "true", "resourceVersion": version, **asked}
        with self._client.stream("GET", path, params=wanted, timeout=None) as answer:
            answer.raise_for_status()
            self._watched = answer.extensions["network_stream"].get_extra_info("socket")
            for line in answer.iter_lines():
                change = json.loads(line)
                if change["type"] == "ERROR":
                    raise Expired(change["object"].get("message", ""))
                yield change["type"], change["object"]

    def end_watch(self) -> None:
        if self._watched is not None and self._watched.fileno() >= 0:
            with suppress(OSError):  # the server has closed it already
                # That of SSLSocket would first take the state away that the watching thread uses.
                socket.socket.shutdown(self._watched, socket.SHUT_RDWR)

    def close(self) -> None:
        self._client.close()

    def _ask(self, verb: str, path: str, **asked: Any) -> Resource | None:
        answer = self._client.request(verb, path, **asked)
        if answer.status_code in (404, 409):
            return None
        if answer.is_error:
            raise Away(f"{verb} {path}: {answer.status_code} {answer.text[:300]}")
        found: Resource = answer.json()
        return found


def find(found: Mapping[str, Any], *path: str, otherwise: Any = None) -> Any:
    """Returns what stands at a path of names, or something else where nothing does."""
    for name in path:
        found = found.get(name) or {}
    return found or otherwise
