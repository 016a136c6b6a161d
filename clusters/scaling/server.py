"""Asks an API server for one workload and writes its replicas: what it answered, or that no answer came.

A request that was refused has done nothing. One whose answer is lost may have been done, or may yet be.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx2
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError

from clusters.estate import WorkloadName
from clusters.kubeconfigs import connect
from clusters.objects import KINDS, KubeObject, KubeResource, read_mapping, read_text, read_whole
from clusters.plugin_tokens import TokenFailed
from clusters.scaling.field_writers import MANAGER, SETTLED
from clusters.server_dates import read_dates

WRITE_SECONDS = 10  # after which the server gives up a write
ANSWER_SECONDS = 20.0
NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.LocalProtocolError)
APPLY = "application/apply-patch+yaml"  # JSON is YAML


class AnswerLost(Exception):
    """No answer came, though the server may have got the request."""


class NotSent(Exception):
    """The server has not got the request."""


@dataclass(frozen=True, slots=True)
class ScaleAnswer:
    """An answer: its status, the object or Status in it, when it was given, and after how long to ask again."""

    status: int
    body: KubeObject
    server_time: datetime | None
    retry_seconds: float | None

    @property
    def reason(self) -> str:
        return f"{self.status} {read_text(self.body, 'message')}".strip()

    @property
    def is_refusal(self) -> bool:
        """Returns whether it says for certain that nothing was done: an error of the server does not."""
        return 300 <= self.status < 500


class ScaleServer:
    """A connection to one API server, as the user of a kubeconfig or the service account of a pod."""

    def __init__(self, client: httpx2.Client) -> None:
        self._client = client

    def read(self, name: WorkloadName) -> ScaleAnswer:
        return self._ask("GET", _spell_path(name))

    def list_autoscalers(self, kind: str, namespace: str) -> ScaleAnswer:
        return self._ask("GET", _spell_root(_find_resource(kind), namespace))

    def put_scale(self, name: WorkloadName, uid: str, version: str, replicas: int) -> ScaleAnswer:
        """Writes replicas if the workload is as it was at the version. Update and patch do; this is an update."""
        metadata = {"name": name.name, "namespace": name.namespace, "uid": uid, "resourceVersion": version}
        return self._ask("PUT", f"{_spell_path(name)}/scale", _make_scale(metadata, replicas), MANAGER)

    def settle_scale(self, name: WorkloadName, version: str, replicas: int) -> ScaleAnswer:
        """Makes a newer version of the workload with the same replicas: it has one manager more that applied them."""
        metadata = {"name": name.name, "resourceVersion": version}
        return self._ask(
            "PATCH", f"{_spell_path(name)}/scale", _make_scale(metadata, replicas), SETTLED + version, APPLY
        )

    def _ask(
        self,
        method: str,
        path: str,
        body: KubeObject | None = None,
        manager: str = "",
        content: str = "application/json",
    ) -> ScaleAnswer:
        parameters = {"fieldManager": manager, "timeout": f"{WRITE_SECONDS}s"} if body else {}
        headers = {"Content-Type": content} if body else {}
        try:
            response = self._client.request(method, path, params=parameters, json=body, headers=headers)
        except (TokenFailed, ConfigError, *NOT_SENT) as error:
            raise NotSent(_say(error)) from None
        except httpx2.HTTPError as error:
            raise AnswerLost(_say(error)) from None
        except (OSError, ValueError):
            raise NotSent("the token's file cannot be read") from None
        return ScaleAnswer(
            response.status_code, _read_body(response), next(iter(read_dates(response.headers.get("date", ""))), None),
            _read_seconds(response.headers.get("retry-after", "")),
        )  # fmt: skip


@contextmanager
def open_server(config: SingleConfig, answer_seconds: float = ANSWER_SECONDS) -> Iterator[ScaleServer]:
    """Opens a connection that waits so long for each answer; several threads may use it."""
    with connect(config) as client:
        client.timeout = httpx2.Timeout(answer_seconds)
        yield ScaleServer(client)


def _find_resource(kind: str) -> KubeResource:
    return next(resource for resource in KINDS if resource.kind == kind)


def _spell_root(resource: KubeResource, namespace: str) -> str:
    return f"/apis/{resource.group}/{resource.versions[0]}/namespaces/{namespace}/{resource.plural}"


def _spell_path(name: WorkloadName) -> str:
    return f"{_spell_root(_find_resource(name.kind), name.namespace)}/{name.name}"


def _make_scale(metadata: dict[str, str], replicas: int) -> dict[str, Any]:
    return {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata, "spec": {"replicas": replicas}}


def _read_body(response: httpx2.Response) -> KubeObject:
    try:
        return read_mapping({"body": response.json()}, "body")
    except (ValueError, RecursionError):
        return {}


def _read_seconds(text: str) -> float | None:
    found = read_whole({"seconds": text}, "seconds")
    return None if found is None else float(found)


def _say(error: Exception) -> str:
    """Returns an error in a line; those of headers repeat the token."""
    if isinstance(error, httpx2.LocalProtocolError):
        return "no header can carry the token"
    return f"{type(error).__name__}: {' '.join(str(error).split())}".rstrip(": ")
