"""An HTTP server that lists recorded objects page by page as an API server does, and fails where it is told to."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.clusters.made_up import Item

PLURALS = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/pods",
    "ReplicaSet": "/apis/apps/v1/replicasets",
    "Deployment": "/apis/apps/v1/deployments",
    "StatefulSet": "/apis/apps/v1/statefulsets",
    "Job": "/apis/batch/v1/jobs",
    "HorizontalPodAutoscaler": "/apis/autoscaling/v2/horizontalpodautoscalers",
    "PodDisruptionBudget": "/apis/policy/v1/poddisruptionbudgets",
    "LeaderWorkerSet": "/apis/leaderworkerset.x-k8s.io/v1/leaderworkersets",
    "Rollout": "/apis/argoproj.io/v1alpha1/rollouts",
    "ScaledObject": "/apis/keda.sh/v1alpha1/scaledobjects",
    "ResourceSlice": "/apis/resource.k8s.io/v1beta1/resourceslices",  # an older server
    "ResourceClaim": "/apis/resource.k8s.io/v1beta1/resourceclaims",
}
DEFINED_BY_USERS = ("LeaderWorkerSet", "Rollout", "ScaledObject")
TOKEN = "a-token"
HANG_UP = -1  # in place of a status


class ListServer(ThreadingHTTPServer):
    """`answers` holds what the next requests of a path get instead: (status, headers, message of a Status)."""

    daemon_threads = True

    def __init__(self, items: Iterable[Item], *, custom: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lists: dict[str, list[Item]] = {
            path: [] for kind, path in PLURALS.items() if custom or kind not in DEFINED_BY_USERS
        }
        for item in items:
            # lists of a server name their kind once, and its objects none
            bare = {key: value for key, value in item.items() if key not in ("kind", "apiVersion")}
            self.lists[PLURALS[item["kind"]]].append(bare)
        self.answers: dict[str, list[tuple[int, dict[str, str], str]]] = defaultdict(list)
        self.requests: list[tuple[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def kubeconfig(self, folder: Path, token: str = TOKEN, url: str = "") -> Path:
        """Writes a kubeconfig whose context `production` is this server."""
        file = folder / "kubeconfig"
        file.write_text(
            json.dumps(
                {
                    "current-context": "production",
                    "clusters": [{"name": "c", "cluster": {"server": url or self.url}}],
                    "users": [{"name": "u", "user": {"token": token}}],
                    "contexts": [{"name": "production", "context": {"cluster": "c", "user": "u"}}],
                }
            )
        )
        return file


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of an answer in one packet
    server: ListServer

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        self.server.requests.append((self.command, self.path))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._status(401, {}, "Unauthorized")
        if self.server.answers[parts.path]:
            status, headers, message = self.server.answers[parts.path].pop(0)
            if status == HANG_UP:
                self.close_connection = True
                return None
            if status:  # 0: this one is answered as usual
                return self._status(status, headers, message)
        found = self.server.lists.get(parts.path)
        if found is None:
            return self._status(404, {}, "the server could not find the requested resource")
        start, limit = int(query.get("continue", "0")), int(query["limit"])
        metadata: dict[str, Any] = {"resourceVersion": "7"}
        if start + limit < len(found):
            metadata |= {"continue": str(start + limit), "remainingItemCount": len(found) - start - limit}
        self._send(200, {}, {"kind": "List", "metadata": metadata, "items": found[start : start + limit]})
        return None

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 (names of the standard library)

    def _status(self, code: int, headers: dict[str, str], message: str) -> None:
        self._send(code, headers, {"kind": "Status", "status": "Failure", "message": message, "code": code})

    def _send(self, code: int, headers: dict[str, str], body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the standard library)
        pass


@contextmanager
def serving(items: Iterable[Item], *, custom: bool = True) -> Iterator[ListServer]:
    server = ListServer(items, custom=custom)
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
