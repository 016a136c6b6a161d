"""Puts objects into an API server as they were in another cluster, status included: no kubelet runs to write it."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.kubernetes.kubeconfig import read_connection
from tests.support.patience import patience

Resource = dict[str, Any]
AT_ONCE = 4


class Recorder:
    """Writes as the bearer of a kubeconfig of ours, over a few connections that it keeps."""

    def __init__(self, kubeconfig: Path) -> None:
        text = kubeconfig.read_text()
        url, authority = read_connection(text)
        self._address = urlsplit(url).netloc
        self._trusted = ssl.create_default_context(cadata=authority)
        self._headers = {
            "Authorization": f"Bearer {json.loads(text)['users'][0]['user']['token']}",
            "Content-Type": "application/json",
        }
        self._plural = cache(self._look_up)
        self._uids: dict[tuple[str, str, str], str] = {}
        self._paths: set[str] = set()  # of the lists in which it has put something

    def put(self, objects: Iterable[Resource]) -> None:
        """Makes all of them, in no order; each has the status that it says, and owners that were put before."""
        parts: list[list[Resource]] = [[] for _ in range(AT_ONCE)]
        for place, one in enumerate(objects):
            parts[place % AT_ONCE].append(one)
        with ThreadPoolExecutor(AT_ONCE) as threads:
            list(threads.map(self._put_in_turn, parts))

    def remove_all(self) -> None:
        """Empties all lists in which it has put something, at once: nothing waits for a kubelet."""
        connection = self._connect()
        for path in sorted(self._paths):
            now = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
            self._request(connection, "DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", **now})
        connection.close()

    def _put_in_turn(self, objects: list[Resource]) -> None:
        connection = self._connect()
        for one in objects:
            path, metadata = self._path(one), one["metadata"]
            self._paths.add(path)
            place = metadata.get("namespace", "")
            for owner in metadata.get("ownerReferences", ()):
                owner["uid"] = self._uids[owner["kind"], place, owner["name"]]
            made = self._request(connection, "POST", path, one)
            self._uids[one["kind"], place, metadata["name"]] = made["metadata"]["uid"]
            if "status" in one:
                made["status"] = one["status"]
                self._request(connection, "PUT", f"{path}/{made['metadata']['name']}/status", made)
        connection.close()

    def _path(self, one: Resource) -> str:
        plural, namespaced = self._plural(one["apiVersion"], one["kind"])
        place = f"/namespaces/{one['metadata']['namespace']}" if namespaced else ""
        return f"{_root(one['apiVersion'])}{place}/{plural}"

    def _look_up(self, version: str, kind: str) -> tuple[str, bool]:
        connection = self._connect()
        found = self._request(connection, "GET", _root(version))["resources"]
        connection.close()
        [known] = [(one["name"], one["namespaced"]) for one in found if one["kind"] == kind and "/" not in one["name"]]
        return known

    def _connect(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(self._address, timeout=patience(), context=self._trusted)

    def _request(
        self, connection: http.client.HTTPSConnection, method: str, path: str, body: Resource | None = None
    ) -> Resource:
        connection.request(method, path, None if body is None else json.dumps(body), self._headers)
        answer = connection.getresponse()
        said: Resource = json.loads(answer.read())
        assert answer.status < 300, f"{method} {path}: {said}"
        return said


def _root(version: str) -> str:
    return f"/apis/{version}" if "/" in version else f"/api/{version}"


def define_kind(group: str, version: str, kind: str, plural: str, scale: str = "") -> Resource:
    """Returns the definition of a kind whose fields nobody checks; `scale` is the path of its replicas."""
    subresources: Resource = {"status": {}}
    if scale:
        subresources["scale"] = {
            "specReplicasPath": scale,
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        }
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    replicas = {"replicas": {"type": "integer", "format": "int32"}}
    open_replicas = {**anything, "properties": replicas}
    schema = {"type": "object", "properties": {"spec": open_replicas, "status": open_replicas}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": subresources,
                }
            ],
        },
    }
