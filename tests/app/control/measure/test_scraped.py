"""A real Prometheus scrapes a planner: it draws percentiles beside the SLO, and names the plan of an answer."""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import start_http_server
from sqlalchemy import text

from app.control.domain.latencies import add, quantile_ms
from app.http.metrics import REGISTRY
from scripts.monitoring import PANELS
from simulation.run import Simulation, open_simulation
from tests.clusters.history import prometheus_over
from tests.simulation.worlds import small
from tests.support.needs import need
from tests.support.patience import until
from tests.support.ports import free_port

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("promtool", "prometheus"),
    pytest.mark.needs("prometheus", "prometheus"),
]


def ask(url: str, path: str, **query: str | float) -> Any:
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.load(answer)["data"]


def value(url: str, expression: str) -> float | None:
    found = ask(url, "query", query=expression)["result"]
    return float(found[0]["value"][1]) if found else None


def stored(simulation: Simulation) -> tuple[str, list[int], float]:
    """The first service with answers, its histogram as the database keeps it, and the time of its newest bucket."""
    sql = "SELECT tenant || '/' || service, latency_counts, extract(epoch FROM at) FROM service_load ORDER BY 1, 3"
    rows = simulation.database.read(lambda connection: list(connection.execute(text(sql))))
    name, counts, newest = next(row[0] for row in rows if sum(row[1])), list[int](), 0.0
    for service, line, at in rows:
        if service == name:
            add(counts, line)
            newest = float(at)
    return name, counts, newest


def test_percentiles_slo_and_plans_of_answers_as_prometheus_keeps_them(database_url: str, tmp_path: Path) -> None:
    with open_simulation(database_url, small(gpus=2)) as simulation:
        simulation.advance(150)
        name, counts, newest = stored(simulation)
        tenant, service = name.split("/")
        port = free_port()
        server, thread = start_http_server(port, "127.0.0.1", REGISTRY)
        try:
            page = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read()
            checked = subprocess.run(
                [need("promtool", "prometheus"), "check", "metrics"], input=page, capture_output=True
            )
            assert b"service_latency" not in checked.stdout + checked.stderr
            with prometheus_over(tmp_path, {"planner": port}, "--enable-feature=exemplar-storage") as url:
                compare(url, tenant, service, counts, newest, simulation)
        finally:
            server.shutdown()
            thread.join()


def compare(url: str, tenant: str, service: str, counts: list[int], newest: float, simulation: Simulation) -> None:
    chosen = f'{{tenant="{tenant}", service="{service}"}}'
    until(lambda: value(url, f"gpuwright_service_latency_seconds_count{chosen}"), "the planner was not scraped")
    assert value(url, f"gpuwright_service_latency_seconds_count{chosen}") == sum(counts)
    mean_ms = 1000 * (value(url, "{0}_sum{1} / {0}_count{1}".format("gpuwright_service_latency_seconds", chosen)) or 0)
    for percentile in (50, 95, 99):
        drawn = value(url, f"histogram_quantile({percentile / 100}, gpuwright_service_latency_seconds_bucket{chosen})")
        exact = quantile_ms(counts, percentile)
        assert drawn and exact
        assert exact / 1.47 <= 1000 * drawn <= exact * 1.47
    assert 0 < mean_ms < (quantile_ms(counts, 100) or 0)
    assert value(url, f"gpuwright_slo_latency_seconds{chosen}")
    assert value(url, f"gpuwright_slo_target_ratio{chosen}")
    for panel in PANELS:
        for expression, _ in panel.queries:
            ask(url, "query", query=expression.replace("$tenant", tenant).replace("$service", service))
    series = f"gpuwright_service_latency_seconds_bucket{chosen}"
    around = {"start": newest - 3600, "end": newest + 1}
    until(lambda: ask(url, "query_exemplars", query=series, **around), "no exemplar was kept")
    found = ask(url, "query_exemplars", query=series, **around)
    named = {exemplar["labels"]["generation"] for entry in found for exemplar in entry["exemplars"]}
    assert named
    assert all(1 <= int(generation) <= simulation.planner.store.view().plan.generation for generation in named)  # type: ignore[union-attr]
