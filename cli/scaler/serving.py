"""Serves a scaler's metrics: all of them at /metrics, and the desired replicas of one workload at a path of its own.

KEDA can follow an address, of which it reads the first sample. So `/metrics/shop/Deployment/ranker` has one alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from socketserver import ThreadingMixIn
from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, generate_latest, make_wsgi_app
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from app.http.metrics import REGISTRY

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ROOT = "/metrics/"
LABELS = ("namespace", "kind", "name")  # in the order of a path


def serve_metrics(port: int, host: str, replicas: Collector) -> None:
    """Serves them from now until the process ends."""
    server = make_server(host, port, make_app(replicas), _Server, _Handler)
    Thread(target=server.serve_forever, daemon=True).start()


def make_app(replicas: Collector) -> WSGIApplication:
    """Returns the application that answers GET; a workload that has no number now is not found."""
    everything: WSGIApplication = make_wsgi_app(REGISTRY)

    def answer(environment: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environment["PATH_INFO"]
        if not path.startswith(ROOT) or path == ROOT:
            return everything(environment, start)
        registry = CollectorRegistry()
        registry.register(_OneWorkload(replicas, path.removeprefix(ROOT)))
        text = generate_latest(registry)
        is_known = any(not line.startswith(b"#") for line in text.splitlines())
        start("200 OK" if is_known else "404 Not Found", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return [text]

    return answer


@dataclass(frozen=True, slots=True)
class _OneWorkload(Collector):
    """The samples of one workload, by its path."""

    replicas: Collector
    path: str

    def collect(self) -> Iterator[Metric]:
        for family in self.replicas.collect():
            found = Metric(family.name, family.documentation, family.type)
            found.samples = [
                sample for sample in family.samples if self.path == "/".join(sample.labels[label] for label in LABELS)
            ]
            yield found


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name of the standard library)
        """Logs nothing: a Prometheus asks every few seconds."""
