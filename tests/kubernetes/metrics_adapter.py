"""An adapter for external metrics, as prometheus-adapter and KEDA are: an API server asks it for what HPAs follow.

It answers by the text that a scaler's `/metrics` shows at that moment, over TLS, and is found by an `ExternalName`.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

from prometheus_client.parser import text_string_to_metric_families

from tests.kubernetes.certificates import make_certificate
from tests.kubernetes.cluster import Cluster
from tests.support.patience import patience

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
PLACE = "monitoring"
GAUGE = "gpuwright_desired_replicas"
# Metrics that such adapters make of the gauge, and what their names say of its labels.
METRICS: Mapping[str, Mapping[str, str]] = {
    GAUGE: {},
    "s0-prometheus": {},
    "gpuwright_desired_replicas_of_ranker": {"name": "ranker"},
    "gpuwright_desired_replicas_of_tagger": {"name": "tagger"},
}
NAMES = {"scaledobject.keda.sh/name": "name"}


class MetricsAdapter(ThreadingHTTPServer):
    """Listens on loopback."""

    daemon_threads = True

    def __init__(self, read_metrics: Callable[[], str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.read_metrics = read_metrics
        self.asked = 0  # for values of a metric

    def values(self, namespace: str, metric: str, selector: str) -> list[dict[str, Any]]:
        """Returns the samples of a metric whose labels fit a selector such as `name=ranker`, in the namespace.

        KEDA names its metrics by triggers, and selects them by its ScaledObject: here that has the workload's name.
        """
        given = dict(part.split("=") for part in selector.split(",") if part)
        selected = {NAMES.get(label, label): value for label, value in given.items()}
        wanted = {"namespace": namespace, **METRICS[metric], **selected}
        return [
            {"metricName": metric, "metricLabels": sample.labels, "timestamp": stamp(), "value": str(int(sample.value))}
            for family in text_string_to_metric_families(self.read_metrics())
            for sample in family.samples
            if sample.name == GAUGE and wanted.items() <= sample.labels.items()
        ]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body of an answer in one packet
    server: MetricsAdapter

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        answer: dict[str, Any] = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": f"{GROUP}/{VERSION}"}
        if parts.path.startswith(f"{ROOT}/namespaces/"):
            _, namespace, metric = parts.path.removeprefix(f"{ROOT}/").split("/")
            selector = parse_qs(parts.query).get("labelSelector", [""])[0]
            items = self.server.values(namespace, metric, selector)
            self.server.asked += 1
            answer = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}}
            answer["items"] = items
        else:
            answer["resources"] = []
        said = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name of the standard library)
        pass


def stamp() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@contextmanager
def serving_metrics(cluster: Cluster, folder: Path, read_metrics: Callable[[], str]) -> Iterator[MetricsAdapter]:
    """Serves external metrics in the cluster for as long as it is open."""
    adapter = MetricsAdapter(read_metrics)
    files = make_certificate(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.key)
    adapter.socket = context.wrap_socket(adapter.socket, server_side=True)
    thread = Thread(target=adapter.serve_forever, args=(0.01,))
    thread.start()
    try:
        with registered_adapter(cluster, adapter.server_address[1]):
            yield adapter
    finally:
        adapter.shutdown()
        thread.join()
        adapter.server_close()


@contextmanager
def registered_adapter(cluster: Cluster, port: int) -> Iterator[None]:
    """Lets the API server ask an adapter on loopback for external metrics, for as long as it is open."""
    service = {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter", "namespace": PLACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    }  # fmt: skip
    registered = {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": f"{VERSION}.{GROUP}"},
        "spec": {
            "group": GROUP, "version": VERSION, "groupPriorityMinimum": 100, "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": "adapter", "namespace": PLACE, "port": port},
        },
    }  # fmt: skip
    try:
        cluster.kubectl("create", "namespace", PLACE)
        cluster.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": [service, registered]})
        cluster.kubectl(
            "wait", "--for=condition=Available", f"apiservice/{VERSION}.{GROUP}", f"--timeout={patience():.0f}s"
        )
        yield
    finally:
        cluster.kubectl("delete", f"apiservice/{VERSION}.{GROUP}")
        cluster.kubectl("delete", "namespace", PLACE, "--wait=false")
