"""Two scalers that share a Postgres: what one has written bounds the other once that leads."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta

import httpx2
import pytest

from app.control.record.scale_store import ScaleStore
from cli.scaler.loads import Percentiles
from cli.scaler.looking import ClusterWatch
from cli.scaler.scaler import Scaler
from clusters.estate import Estate, WorkloadName
from clusters.measured import MeasuredLoads, WorkloadSeries
from clusters.objects import ClusterObjects, objects_of
from clusters.scaling.server import ScaleServer
from clusters.scaling.writing import KubernetesEngine
from tests.clusters.made_up import Item, deployment, node, pod_spec
from tests.support.scaling import ScalerStore

RANKER = WorkloadName("shop", "Deployment", "ranker")
LEASE_SECONDS, STEP_SECONDS = 60.0, 120.0
ADOPTED = {"service": "ranker", "mode": "auto", "min-replicas": "20", "max-replicas": "20"}
MADE = {"manager": "kubectl-create", "operation": "Update", "time": "2026-01-01T00:00:00Z"}
FIELDS: Item = {"fieldsV1": {"f:spec": {"f:replicas": {}}}}


@dataclass
class MadeUpServer:
    """An API server with one Deployment, whose pods follow its replicas, and with metrics of a steady load."""

    store: ScalerStore
    replicas: int = 2
    version: int = 1

    @contextmanager
    def open(self) -> Iterator[KubernetesEngine]:
        with httpx2.Client(transport=httpx2.MockTransport(self._answer), base_url="http://cluster") as client:
            yield KubernetesEngine(ScaleServer(client))

    def scaler(self, holder: str) -> Scaler:
        def clock() -> float:
            return self.store.now.timestamp()

        watch = ClusterWatch(self._read_objects, self._measure, clock, 2.0)
        return Scaler(
            ScaleStore(self.store.database, holder, LEASE_SECONDS), watch, self.open, clock, 5.0, STEP_SECONDS
        )

    def _items(self) -> Iterator[Item]:
        yield node("n1", 32, "NVIDIA-L40S", "g6e.12xlarge")
        annotations = {f"gpuwright.io/{key}": text for key, text in ADOPTED.items()}
        places = ["n1"] * self.replicas
        for item in deployment("shop", "ranker", pod_spec("triton:1", 1), places, annotations=annotations):
            if item["kind"] == "Deployment":
                writers = [{**MADE, **FIELDS}]
                item["metadata"] |= {
                    "resourceVersion": str(self.version), "generation": self.version, "managedFields": writers,
                }  # fmt: skip
            yield item

    def _read_objects(self) -> ClusterObjects:
        return replace(objects_of(self._items()), server_time=self.store.now, read_until=self.store.now)

    def _measure(self, estate: Estate, seconds: float, percentiles: Percentiles) -> MeasuredLoads:
        steps = int(seconds // 900)
        load = WorkloadSeries((10.0,) * steps, (2.0,) * steps, latency_ms=(20.0,) * steps)
        start = self.store.now.timestamp() - steps * 900
        return MeasuredLoads(start, 900, steps, "Prometheus", {RANKER: load}, current=frozenset({RANKER}))

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "PUT":
            self.replicas = json.loads(request.content)["spec"]["replicas"]
            self.version += 1
        date = {"Date": f"{self.store.now:%a, %d %b %Y %H:%M:%S GMT}"}
        if not request.url.path.split("/")[-1].startswith("ranker") and request.method == "GET":
            return httpx2.Response(200, json={"items": []}, headers=date)
        found = next(item for item in self._items() if item["kind"] == "Deployment")
        return httpx2.Response(200, json=found, headers=date)


@pytest.fixture
def server(database_url: str) -> Iterator[MadeUpServer]:
    store = ScalerStore(database_url)
    yield MadeUpServer(store)
    store.database.close()


def run(scaler: Scaler, server: MadeUpServer, looks: int) -> list[int]:
    """Lets a scaler lead for so many looks, twenty seconds apart; returns the replicas after each."""
    found = []
    for _ in range(looks):
        assert scaler.lead()
        scaler.step()
        found.append(server.replicas)
        server.store.now += timedelta(seconds=20)
    return found


@pytest.mark.slow
def test_a_scaler_that_takes_over_waits_for_the_next_step_as_long_as_the_one_before(server: MadeUpServer) -> None:
    first, second = server.scaler("first"), server.scaler("second")
    assert run(first, server, 3) == [6, 6, 6]
    first.store.step_down()
    assert run(second, server, 4) == [6, 6, 6, 12], "the first has written two minutes before"
    second.store.step_down()
    assert run(first, server, 6) == [12, 12, 12, 12, 12, 20]
