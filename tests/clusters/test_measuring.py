"""What a real Prometheus has of an estate: loads and latencies of its workloads; what is missing has a sentence."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path

import pytest
import yaml

from cli.main import main
from clusters.estate import Estate, WorkloadName
from clusters.metrics.measuring import PrometheusReading, measure, measure_loads
from clusters.metrics.prometheus import MetricSample, PrometheusFailed, PrometheusServer
from tests.clusters.history import PastSeries, prometheus_with, steady
from tests.clusters.measured_estate import (
    HOUR,
    LLAMA,
    OCR,
    RANKER,
    SCORER,
    TAGGER,
    WEB,
    items,
    no_pause,
    of_pods,
    sentences,
)

pytestmark = pytest.mark.slow


def test_rates_of_what_was_served_add_up_over_the_pods_of_a_workload_past_ones_too(
    measured: tuple[PrometheusReading, str],
) -> None:
    load = measured[0].loads.workloads[RANKER]
    assert load.server == "triton"
    assert len(load.rates_per_second) == 12
    assert load.rates_per_second[-1] == pytest.approx(70.0, rel=0.01)
    assert load.peaks_per_second[-1] == pytest.approx(70.0, rel=0.02)
    assert load.ready_replicas[-1] == load.fewest_replicas[-1] == 2
    assert load.latency_ms[-1] == 40.0  # all that is sure of half way between 20 and 40


def test_a_cronjob_that_is_called_as_a_deployment_takes_none_of_its_counters(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    names = [each.name for each in estate.workloads if each.name.name == SCORER.name]
    assert names == [WorkloadName("shop", "CronJob", "scorer"), SCORER]
    assert names[0] not in measured[0].loads.workloads and SCORER in measured[0].loads.workloads


def test_quantiles_that_replicas_compute_count_as_the_slowest_of_them(measured: tuple[PrometheusReading, str]) -> None:
    assert measured[0].loads.workloads[SCORER].latency_ms[-1] == 34.0


def test_tokens_and_their_times_are_read_by_labels_that_the_scraper_renamed(
    measured: tuple[PrometheusReading, str],
) -> None:
    load = measured[0].loads.workloads[LLAMA]
    assert (load.server, load.ready_replicas[-1]) == ("vllm", 1)
    assert load.rates_per_second[-1] == pytest.approx(2.0, rel=0.01)
    assert load.input_tokens[-1] == pytest.approx(1000, rel=0.01)
    assert load.output_tokens[-1] == pytest.approx(200, rel=0.01)
    assert load.first_token_ms[-1] == 500.0  # the upper bound, again
    assert load.token_ms[-1] == math.inf  # two in a hundred took longer than any bound
    assert load.latency_ms == ()


def test_what_no_server_counts_istio_does_without_quick_refusals(measured: tuple[PrometheusReading, str]) -> None:
    load = measured[0].loads.workloads[WEB]
    assert (load.server, load.ready_replicas[-1]) == ("istio", 1)
    assert load.rates_per_second[-1] == pytest.approx(8.0, rel=0.01)
    assert load.latency_ms[-1] == 10.0


def test_what_is_missing_has_a_sentence_each(measured: tuple[PrometheusReading, str]) -> None:
    text = sentences(measured[0])
    assert "workload vision/Deployment/ocr: Prometheus has no counters of vLLM" in text
    assert "GPUs: DCGM_FI_DEV_GPU_UTIL says that something ran, not on how many SMs" in text
    assert "GPUs: dcgm-exporter's metrics are of 5 GPUs, and the nodes have 6" in text
    assert "workload vision/Deployment/tagger: no metric of triton says which latency it keeps; run Triton with" in text
    assert "ranker" not in text
    assert "node n2: OpenCost's price of 1e+308 an hour is outside 0..1e+08" in text
    assert "GPU GPU-0: dcgm-exporter says what no GPU can do, which is left out" in text
    assert text.count("llama") == 1
    assert (
        "llama: its counters name it by exported_namespace and exported_pod alone, which any scraped pod can write; "
        "set honor_labels in the scrape job, if you trust who writes them" in text
    )


def test_what_changes_replicas_follows_no_label_that_a_scraped_pod_can_write(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    found = measure_loads(estate, PrometheusServer(measured[1], "", no_pause), HOUR, {})
    assert set(found.workloads) == found.current == {RANKER, SCORER, TAGGER, WEB}
    assert found.workloads[RANKER].rates_per_second[-1] == pytest.approx(70.0, rel=0.01)
    assert found.workloads[WEB].rates_per_second[-1] == pytest.approx(8.0, rel=0.01)


def test_a_query_that_fails_is_no_load_of_nothing(estate: Estate, measured: tuple[PrometheusReading, str]) -> None:
    for answers in (0, 1, 2, 9):
        with pytest.raises(PrometheusFailed, match="cannot be reached"):
            measure_loads(estate, SourceThatEnds(measured[1], answers), HOUR, {})


@pytest.mark.parametrize(("text", "missing"), [("ranker-", {RANKER}), ("istio_requests_total", {WEB, LLAMA, OCR})])
def test_a_query_without_an_answer_costs_only_the_workloads_that_need_it_their_load(
    estate: Estate, measured: tuple[PrometheusReading, str], text: str, missing: set[WorkloadName]
) -> None:
    found = measure_loads(estate, SourceThatRefuses(measured[1], text), HOUR, {})
    assert found.unread == dict.fromkeys(missing, "it answered 503 busy")
    assert set(found.workloads) == found.current == {RANKER, SCORER, TAGGER, WEB} - missing


def test_samples_of_minutes_ago_are_not_the_load_of_now(estate: Estate, tmp_path: Path) -> None:
    now = time.time()

    def until_then(seconds_ago: float) -> Callable[[float], float | None]:
        return lambda at: 3 * at if at <= now - seconds_ago else None

    ages = {RANKER: 60, SCORER: 240, TAGGER: 720}
    series = [
        PastSeries("nv_inference_request_success", of_pods(estate, name)[0], until_then(age))
        for name, age in ages.items()
    ]
    with prometheus_with(series, tmp_path, now - 2 * HOUR, now) as url:
        found = measure_loads(estate, PrometheusServer(url, "", no_pause), HOUR, {})
    assert set(found.workloads) == set(ages)
    assert found.current == {RANKER}


def test_a_load_that_ended_hours_ago_has_a_sentence(estate: Estate, tmp_path: Path) -> None:
    now = time.time()
    series = PastSeries("nv_inference_request_success", of_pods(estate, RANKER)[0], lambda at: 3 * at)
    with prometheus_with([series], tmp_path, now - 40 * HOUR, now - 3 * HOUR) as url:
        found = measure(estate, PrometheusServer(url, "", no_pause), 36 * HOUR, time.time(), {})
    assert re.search(r"ranker: Prometheus has nothing of its last [23]\.[0-9] hours; see whether", sentences(found))


def test_a_longer_time_than_there_is_and_a_clock_that_is_off_are_said(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    source = PrometheusServer(measured[1], "", no_pause)
    found = measure(estate, source, 48 * HOUR, time.time() - 26 * HOUR, {RANKER: 95.0})
    text = sentences(found)
    assert "Prometheus: its clock is 26.0 hours ahead of this machine's" in text
    # a step more where a quarter of an hour ends while this runs
    assert re.search(r"workload shop/Deployment/ranker: Prometheus has its load for 4\.[02] hours of 2\.0 days", text)
    assert found.loads.workloads[RANKER].latency_ms[-1] == pytest.approx(20.0, rel=0.1)


def test_an_empty_prometheus_leaves_everything_unknown(estate: Estate, tmp_path: Path) -> None:
    with prometheus_with([PastSeries("up", {}, steady(1))], tmp_path, time.time() - HOUR, time.time()) as url:
        found = measure(estate, PrometheusServer(url, "", no_pause), HOUR, time.time(), {})
    assert (found.loads.workloads, found.gpus, found.uses, found.node_prices) == ({}, (), {}, {})
    assert "GPUs: Prometheus has no metrics of dcgm-exporter" in sentences(found)
    assert sentences(found).count("Prometheus has no counters of vLLM") == 6


def test_loads_and_use_stand_beside_the_bill(
    measured: tuple[PrometheusReading, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "objects.json").write_text(json.dumps(list(items())))
    words = ["assess", "-f", str(tmp_path / "objects.json"), "--prometheus", measured[1], "--from", "2h"]
    assert main(words) == 0
    out = capsys.readouterr().out
    table = out.partition("SERVING")[2].partition("\n\n")[0]
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in table.splitlines() if line}
    assert rows["shop/Deployment/ranker"] == "triton 70 70 2 40 ms 40 ms - 0.3 of 2 11 GiB"
    assert rows["chat/LeaderWorkerSet/llama"] == "vllm 2 2 1 - 500 ms above all buckets 0.7 of 2 13 GiB"
    assert rows["vision/Deployment/ocr"] == "- - - - - - - 0..0.6 of 1 6 GiB shared"
    assert "OpenCost" in out
    assert main([*words, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["measured"]
    slo = tmp_path / "slo.yaml"
    slo.write_text("- {workload: shop/ranker, model: ranker, latencyMs: 50}")
    assert main([*words, "--slo", str(slo), "-o", "yaml"]) == 0
    documents = list(filter(None, yaml.safe_load_all(capsys.readouterr().out)))
    (service,) = [document["spec"] for document in documents if document["kind"] == "Service"]
    assert service["ratePerSecond"] == pytest.approx(70, rel=0.01)
    assert {value for load in found["loads"] for value in load["tokenMs"]} == {None}
    assert (found["stepSeconds"], found["steps"], len(found["gpus"]), len(found["loads"])) == (900, 8, 5, 5)


class SourceThatEnds:
    """Answers some queries of a real Prometheus, and is gone then."""

    def __init__(self, url: str, answers: int) -> None:
        self._source, self._answers = PrometheusServer(url, "", no_pause), count()
        self._most = answers

    def _check(self) -> None:
        if next(self._answers) >= self._most:
            raise PrometheusFailed("it cannot be reached: Connection refused", is_last=True)

    def now(self) -> float:
        return self._source.now()

    def at(self, query: str, moment: float) -> list[MetricSample]:
        self._check()
        return self._source.at(query, moment)

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        self._check()
        return self._source.over(query, ends, label)

    def label_values(self, label: str, selector: str, begin: float, end: float) -> list[str]:
        self._check()
        return self._source.label_values(label, selector, begin, end)


def test_of_a_prometheus_that_ends_in_the_middle_what_was_read_whole_stands(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    whole, url = measured
    end = whole.loads.start + whole.loads.steps * whole.loads.step_seconds  # a quarter of an hour may have begun since
    for answers in range(0, 36, 5):
        found = measure(estate, SourceThatEnds(url, answers), 3 * HOUR, end, {})
        assert set(found.loads.workloads) <= set(whole.loads.workloads)
        for load in found.loads.workloads.values():
            assert load.peaks_per_second and load.fewest_replicas and load.ready_replicas
        ended = [str(figure) for figure in found.unknown if "what had not been read by then is missing" in str(figure)]
        assert ended == [
            "Prometheus: it cannot be reached: Connection refused; what had not been read by then is missing;"
            " run it again when it can be reached"
        ]
        assert found.loads.passing_gpus in ({}, whole.loads.passing_gpus)
        assert "no metrics of dcgm-exporter" not in sentences(found)


class SourceThatRefuses(SourceThatEnds):
    """Answers as a real Prometheus, but refuses each query that has a text."""

    def __init__(self, url: str, text: str) -> None:
        super().__init__(url, 999)
        self._text = text

    def _refuse(self, query: str) -> None:
        if self._text in query:
            raise PrometheusFailed("it answered 503 busy")

    def at(self, query: str, moment: float) -> list[MetricSample]:
        self._refuse(query)
        return super().at(query, moment)

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        self._refuse(query)
        return super().over(query, ends, label)


class SourceWithoutLabels(SourceThatEnds):
    """Answers queries, but no question for labels, as prom-label-proxy."""

    def label_values(self, label: str, selector: str, begin: float, end: float) -> list[str]:
        raise PrometheusFailed("it answered 404 Not Found")


class SourceOfNoLabels(SourceThatEnds):
    """Answers queries, and that there are no labels."""

    def label_values(self, label: str, selector: str, begin: float, end: float) -> list[str]:
        return []


def test_without_an_index_of_labels_latencies_are_the_same(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    seconds = 3 * HOUR
    whole, *found = (
        measure(estate, source(measured[1], 999), seconds, time.time(), {})
        for source in (SourceThatEnds, SourceWithoutLabels, SourceOfNoLabels)
    )
    assert found == [whole, whole]


class SourceThatTells(SourceThatEnds):
    """Remembers what it was asked."""

    def __init__(self, url: str) -> None:
        super().__init__(url, 999)
        self.asked: list[str] = []

    def at(self, query: str, moment: float) -> list[MetricSample]:
        self.asked.append(query)
        return super().at(query, moment)


def test_bounds_of_a_histogram_are_read_of_samples_of_one_moment(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    source = SourceThatTells(measured[1])
    measure(estate, source, HOUR, time.time(), {})
    asked = [query for query in source.asked if "_bucket" in query or "summary_us" in query]
    assert asked and not [query for query in asked if re.search("[0-9]s]", query)]


class SourceThatMultiplies(SourceThatEnds):
    """Answers as a real Prometheus, but with so many times as much."""

    def __init__(self, url: str, factor: str) -> None:
        super().__init__(url, 999)
        self._factor = factor

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        return super().over(f"{self._factor} * ({query})", ends, label)

    def at(self, query: str, moment: float) -> list[MetricSample]:
        return super().at(f"{self._factor} * ({query})" if "DCGM" in query else query, moment)


def test_what_no_server_and_no_gpu_does_is_left_out(estate: Estate, measured: tuple[PrometheusReading, str]) -> None:
    found = measure(estate, SourceThatMultiplies(measured[1], "1e30"), HOUR, time.time(), {})
    assert found.loads.workloads == {}
    assert re.search("load of shop/Deployment/ranker: it says [0-9.e+]* of nv_inf.* is above 1e.12", sentences(found))
    assert "dcgm-exporter says what no GPU can do, which is left out" in sentences(found)
    assert all(gpu.memory_peak_gib is None for gpu in found.gpus)
    found = measure(estate, SourceThatMultiplies(measured[1], "1e5"), HOUR, time.time(), {})
    assert found.loads.workloads == {}
    assert "it says that it had 200000 replicas, which is above 10,000" in sentences(found)


class SourceBelowZero(SourceThatEnds):
    """Answers as a real Prometheus, but with rates below 0."""

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        return super().over(f"0 - ({query})", ends, label)


def test_rates_below_zero_are_no_load(estate: Estate, measured: tuple[PrometheusReading, str]) -> None:
    found = measure(estate, SourceBelowZero(measured[1], 999), HOUR, time.time(), {})
    assert found.loads.workloads == {}
    assert re.search("load of shop/Deployment/ranker: it says -70[.0-9]* of nv_inference_request", sentences(found))
