"""Every version that an object had, as the API server itself tells it to a watch: what a judge of writes goes by."""

from __future__ import annotations

import http.client
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

from tests.kubernetes.kubeconfig import read_connection
from tests.support.patience import patience, until


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a workload: what is declared, and which managers have its replicas."""

    version: str
    generation: int
    replicas: int
    managers: tuple[str, ...]
    mode: str


class ObjectHistory:
    """The versions of one Deployment since it was made, in order; a thread reads them until the object is deleted."""

    def __init__(self, kubeconfig: Path, namespace: str, name: str) -> None:
        text = kubeconfig.read_text()
        url, authority = read_connection(text)
        trusted = ssl.create_default_context(cadata=authority)
        self._connection = http.client.HTTPSConnection(urlsplit(url).netloc, timeout=10 * patience(), context=trusted)
        headers = {"Authorization": f"Bearer {json.loads(text)['users'][0]['user']['token']}"}
        query = f"watch=1&fieldSelector=metadata.name%3D{name}&timeoutSeconds=3600"
        self._connection.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments?{query}", headers=headers)
        self._answer = self._connection.getresponse()
        self.versions: list[Version] = []
        self._thread = Thread(target=self._read, daemon=True)
        self._thread.start()
        until(lambda: self.versions, "the first version")

    def _read(self) -> None:
        for line in self._answer:
            event = json.loads(line)
            if event["type"] == "DELETED":
                return
            self.versions.append(_version(event["object"]))

    def close(self) -> None:
        """Waits for the last version: the object has been deleted."""
        self._thread.join(patience())
        assert not self._thread.is_alive()
        self._connection.close()


def _version(item: dict[str, Any]) -> Version:
    metadata = item["metadata"]
    managers = tuple(
        each["manager"]
        for each in metadata["managedFields"]
        if "f:replicas" in each.get("fieldsV1", {}).get("f:spec", {}) and each.get("subresource") != "status"
    )
    mode = metadata["annotations"]["gpuwright.io/mode"]
    return Version(metadata["resourceVersion"], metadata["generation"], item["spec"]["replicas"], managers, mode)
