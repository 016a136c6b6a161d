"""Real scaler processes between a real API server, a real Prometheus and a real Postgres."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from app.store.database.database import Database
from app.store.plans import scale_plans
from app.store.plans.scale_rows import ScalePlan, ScaleRow, ScaleState
from app.store.world import events
from app.store.world.events import EventFilter, RecordedEvent
from tests.clusters.history import PastSeries, buckets, counting, prometheus_with
from tests.kubernetes.scaled import Item, ScalingServer
from tests.support.forked import ROOT, Forked
from tests.support.patience import patience
from tests.support.ports import free_port

LEASE_SECONDS = 3.0
MADE_LONG_AGO = {
    "manager": "kubectl-create",
    "operation": "Update",
    "time": "2026-01-01T00:00:00Z",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:spec": {"f:replicas": {}}},
}


class ScalerProcess:
    """`gpuwright scaler`, its log and its metrics."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.log, self.port = log, free_port()
        log.touch()
        given = {**os.environ, **environment, "GPUWRIGHT_SCALER_METRICS_PORT": str(self.port)}
        self._process = Forked(["scaler"], ROOT, given, log)
        self.pid = self._process.pid

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def end(self) -> int:
        """Asks it to end, and waits until it has."""
        self.send(signal.SIGCONT)
        self.send(signal.SIGTERM)
        return self._process.wait(patience())

    def events(self) -> list[str]:
        return [line["event"] for line in self.lines()]

    def lines(self) -> list[dict[str, Any]]:
        whole, _, _ = self.log.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]

    def metrics(self, path: str = "/metrics") -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=patience()) as answer:
            return str(answer.read().decode())

    def gauge(self) -> dict[str, float]:
        """Returns the desired replicas by name of the workload."""
        lines = [line for line in self.metrics().splitlines() if line.startswith("gpuwright_desired_replicas{")]
        return {line.split('name="')[1].split('"')[0]: float(line.rsplit(" ", 1)[1]) for line in lines}


class ScaledPlace:
    """A namespace with adopted workloads, a database, and the scalers that share them."""

    def __init__(self, server: ScalingServer, namespace: str, database_url: str, prometheus: str, folder: Path) -> None:
        self.server, self.namespace, self.folder, self.url = server, namespace, folder, database_url
        self.database = Database(database_url, pool_size=2, direct=True)
        self._environment = {
            "DATABASE_URL": database_url,
            "GPUWRIGHT_DATABASE_DIRECT": "1",
            "GPUWRIGHT_PROMETHEUS_URL": prometheus,
            "GPUWRIGHT_SCALE_SECONDS": "1",
            "GPUWRIGHT_SCALE_STEP_SECONDS": "0.001",
            "GPUWRIGHT_SCALE_DAYS": "1.1",
            "GPUWRIGHT_SCALE_NAMESPACES": namespace,
            "GPUWRIGHT_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        self._started: list[ScalerProcess] = []

    def start(self, kubeconfig: Path | None = None, **settings: str) -> ScalerProcess:
        """Starts one more scaler, as the user with the chart's role."""
        given = {**self._environment, "KUBECONFIG": str(kubeconfig or self.server.user.kubeconfig), **settings}
        process = ScalerProcess(given, self.folder / f"scaler-{len(self._started)}.log")
        self._started.append(process)
        return process

    def put(self, *items: Item) -> None:
        """Makes workloads whose replicas were written long ago, so that nothing holds them."""
        self.server.put(self.namespace, *items)
        for item in items:
            self._change(item, {"managedFields": [{**MADE_LONG_AGO, "apiVersion": item["apiVersion"]}]})

    def annotate(self, item: Item, **annotations: str | None) -> None:
        """Changes what the annotations of a workload say, as its owner would."""
        given = {f"gpuwright.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
        self._change(item, {"annotations": given})

    def _change(self, item: Item, metadata: Mapping[str, object]) -> None:
        name, patch = f"{item['kind'].lower()}/{item['metadata']['name']}", json.dumps({"metadata": metadata})
        self.server.cluster.kubectl("-n", self.namespace, "patch", name, "--type=merge", "-p", patch)

    def plan(self) -> ScalePlan | None:
        return self.database.read(scale_plans.read_plan)

    def rows(self) -> dict[str, ScaleRow]:
        """Returns the rows of the newest plan by name."""
        plan = self.plan()
        return {row.target.name: row for row in plan.rows} if plan else {}

    def states(self, generation: int | None = None) -> dict[str, str]:
        """Returns the state of each row of a plan, by default of the newest."""
        plan = self.database.read(lambda connection: scale_plans.read_plan(connection, generation))
        return {row.target.name: row.state.value for row in plan.rows} if plan else {}

    def approve(self, name: str) -> None:
        row = self.rows()[name]
        assert self.database.write(lambda c: scale_plans.decide(c, row, ScaleState.APPROVED, "ines"))

    def events(self) -> list[RecordedEvent]:
        return self.database.read(lambda connection: events.recent(connection, EventFilter(kind="Scale")))

    def replicas(self, name: str) -> int:
        return self.server.replicas(self.namespace, f"deployment/{name}")

    def close(self) -> None:
        for process in self._started:
            process.kill()
        self.database.close()


def serve(pods: Iterable[dict[str, str]], per_second: float, start: float) -> Iterator[PastSeries]:
    """Yields what Triton tells of pods that answer so many requests a second each, all within 40 ms."""
    for pod in pods:
        yield PastSeries("nv_inference_request_success", {**pod, "model": "m"}, counting(per_second, start))
        yield PastSeries("nv_inference_request_failure", {**pod, "model": "m"}, counting(0.0, start))
        yield from buckets("nv_inference_first_response_histogram_ms", pod, per_second, {"20": 0.98, "40": 1.0})


@contextmanager
def scaled_place(
    server: ScalingServer, database_url: str, folder: Path, names: Iterable[str], per_second: float = 1.0, pods: int = 1
) -> Iterator[ScaledPlace]:
    """Makes a place whose workloads of these names have had a load for 30 hours, and go on so."""
    with server.namespace() as namespace, ExitStack() as stack:
        now, past = time.time(), folder / "past"
        past.mkdir()
        served = [
            {"namespace": namespace, "pod": f"{name}-5d4f7c9b8-{5 * end}"} for name in names for end in "bcdfgh"[:pods]
        ]
        series = serve(served, per_second, now - 30 * 3600)
        prometheus = stack.enter_context(prometheus_with(series, past, now - 30 * 3600, now + 2 * 3600))
        place = ScaledPlace(server, namespace, database_url, prometheus, folder)
        try:
            yield place
        finally:
            place.close()
