"""What a real Prometheus has of nodes and GPUs: use, what jobs held, how long each node stood, prices."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.estate import Estate
from clusters.gpu_use import UseInterval
from clusters.metrics.measuring import PrometheusReading, measure
from clusters.metrics.prometheus import PrometheusServer
from tests.clusters.history import PastSeries, prometheus_with
from tests.clusters.measured_estate import HOUR, OCR, RANKER, TAGGER, no_pause, past, sentences

pytestmark = pytest.mark.slow


def test_a_gpu_that_one_workload_holds_is_its_own_and_a_shared_one_is_an_interval(
    measured: tuple[PrometheusReading, str],
) -> None:
    found = measured[0]
    assert [(gpu.device, gpu.node, gpu.pods) for gpu in found.gpus] == [
        ("GPU-0", "n1", 1), ("GPU-1", "n1", 1), ("GPU-2", "n1", 1), ("GPU-3", "n1", 1), ("GPU-9", "n2", 2),
    ]  # fmt: skip
    assert found.gpus[0].activity_metric == "DCGM_FI_PROF_SM_ACTIVE"
    ranker = found.uses[RANKER]
    assert ranker.activity is not None
    assert ranker.activity.low == ranker.activity.high == pytest.approx(0.3)
    assert ranker.memory_peak_gib == UseInterval(11.0, 11.0)
    for name in (OCR, TAGGER):
        assert found.uses[name].activity == UseInterval(0, 0.6)
        assert found.uses[name].memory_peak_gib == UseInterval(0, 6.0)


def test_gpus_that_jobs_held_are_known_by_node_and_step(measured: tuple[PrometheusReading, str]) -> None:
    held = measured[0].loads.passing_gpus
    assert held["n1"] == held["n3"] == (0.0,) * 12  # what a Deployment holds does not pass
    assert held["n2"][0] == pytest.approx(0.1)  # a slot of ten
    assert held["n2"][-1] == 0


def test_nodes_are_known_while_they_stood_those_that_are_gone_too(measured: tuple[PrometheusReading, str]) -> None:
    found = measured[0].loads.standing_nodes
    stood = {name: [share or 0.0 for share in shares] for name, shares in found.items()}
    assert stood.keys() == {"n1", "n3", "old", "brief"}
    assert 0 < sum(stood["brief"]) < 0.7  # a minute, and until Prometheus takes it to be gone
    assert min(stood["n1"][1:]) > 0.9
    assert stood["n3"][0] == stood["old"][-1] == 0
    assert 0.9 < stood["n3"][-1] <= 1
    assert 0.9 < stood["old"][1] <= 1


def test_prices_of_opencost_are_those_of_nodes(measured: tuple[PrometheusReading, str]) -> None:
    assert measured[0].node_prices == {"n1": 9_250_000_000}


def rename(series: PastSeries, labels: tuple[str, ...]) -> PastSeries:
    """Returns a series as Prometheus keeps it whose scrape job sets these labels itself."""
    own = {f"exported_{label}": series.labels[label] for label in labels if label in series.labels}
    return PastSeries(series.name, {**series.labels, **dict.fromkeys(labels, "of-the-scrape"), **own}, series.value)


@pytest.mark.parametrize("labels", [("node",), ("namespace", "pod"), ("namespace", "pod", "node")])
def test_what_a_scrape_job_puts_its_own_labels_on_is_not_measured_and_a_sentence_says_so(
    estate: Estate, tmp_path: Path, labels: tuple[str, ...]
) -> None:
    now = time.time()

    def renamed() -> Iterator[PastSeries]:
        for series in past(estate, now - 2 * HOUR):
            if series.name.startswith("kube_") or series.name == "node_total_hourly_cost":
                yield rename(series, labels)

    with prometheus_with(renamed(), tmp_path, now - 2 * HOUR, now) as url:
        found = measure(estate, PrometheusServer(url, "", no_pause), HOUR, time.time(), {})
    text, remedy = sentences(found), "since its scrape job sets its own; set honor_labels: true in the scrape of"
    assert found.loads.passing_gpus == {}
    assert (
        f"held at other times: Prometheus has labels of kube_pod_container_resource_requests as exported_{labels[0]}"
        in text
    )
    assert f"{remedy} kube-state-metrics" in text
    if "node" in labels:
        assert (found.loads.standing_nodes, found.node_prices) == ({}, {})
        assert (
            f"how long each node stood: Prometheus has labels of kube_node_status_capacity as exported_node, {remedy}"
            in text
        )
        assert (
            f"prices of nodes: Prometheus has labels of node_total_hourly_cost as exported_node, {remedy} OpenCost"
            in text
        )
    else:
        assert set(found.loads.standing_nodes) >= {"n1", "old"}
        assert found.node_prices == {"n1": 9_250_000_000}


@pytest.mark.parametrize("metric", ["kube_pod_owner", "kube_pod_status_phase", "kube_pod_container_resource_requests"])
def test_what_jobs_held_is_not_known_where_a_metric_of_kube_state_metrics_is_missing(
    estate: Estate, tmp_path: Path, metric: str
) -> None:
    now = time.time()
    kept = (series for series in past(estate, now - 2 * HOUR) if series.name != metric and "kube_" in series.name)
    with prometheus_with(kept, tmp_path, now - 2 * HOUR, now) as url:
        found = measure(estate, PrometheusServer(url, "", no_pause), HOUR, time.time(), {})
    assert found.loads.passing_gpus == {}
