"""What a real Prometheus has of an estate: loads, latencies, what GPUs did; what is missing has a sentence."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

import pytest
import yaml

from cli.main import main
from clusters.estate import Estate, WorkloadName
from clusters.gpu_use import UseInterval
from clusters.measuring import STEP_SECONDS, PrometheusReading, measure, measure_loads
from clusters.objects import objects_of
from clusters.prometheus import MetricSample, PrometheusFailed, PrometheusServer
from clusters.reading import read_estate
from tests.clusters.history import PastSeries, buckets, counting, prometheus_with, steady
from tests.clusters.made_up import Item, deployment, leader_worker_set, node, pod_spec

pytestmark = pytest.mark.slow

HOUR = 3600
RANKER = WorkloadName("shop", "Deployment", "ranker")
LLAMA = WorkloadName("chat", "LeaderWorkerSet", "llama")
OCR, TAGGER = (WorkloadName("vision", "Deployment", name) for name in ("ocr", "tagger"))
SCORER = WorkloadName("shop", "Deployment", "scorer")
WEB = WorkloadName("shop", "Deployment", "web")


def items() -> Iterator[Item]:
    yield node("n1", 4, "NVIDIA-L40S", "g6e.12xlarge")
    yield node("n3", 1, "NVIDIA-L4", "g6.xlarge")
    yield node("n2", 1, "Tesla-T4", "g4dn.xlarge", replicas=10, sharing="mps")
    yield from deployment("shop", "ranker", pod_spec("triton:1", 1), ["n1", "n1"])
    yield from leader_worker_set("chat", "llama", pod_spec("vllm:1", 1), [["n1", "n1"]])
    yield from deployment("shop", "web", pod_spec("web:1", 1), ["n3"])
    yield from deployment("shop", "scorer", pod_spec("triton:1", 1), ["n2", "n2"])
    yield from deployment("vision", "ocr", pod_spec("triton:1", 1), ["n2"])
    yield from deployment("vision", "tagger", pod_spec("triton:1", 1), ["n2"])


@pytest.fixture(scope="module")
def estate() -> Estate:
    return read_estate(objects_of(items()))


def of_pods(estate: Estate, name: WorkloadName, prefix: str = "") -> list[dict[str, str]]:
    return [{f"{prefix}namespace": pod.namespace, f"{prefix}pod": pod.name} for pod in estate.pods_of(name)]


def past(estate: Estate, start: float) -> Iterator[PastSeries]:
    """Two rankers that Prometheus labels itself, one llama group, GPUs alone and shared, and OpenCost's prices."""
    for at, labels in enumerate(of_pods(estate, RANKER)):
        rate = 30.0 + 10.0 * at
        yield PastSeries("nv_inference_request_success", {**labels, "model": "m"}, counting(rate, start))
        yield PastSeries("nv_inference_request_failure", {**labels, "model": "m"}, counting(rate / 10, start))
        bounds = {"10": 0.5, "20": 0.98, "40": 1.0}
        yield from buckets("nv_inference_first_response_histogram_ms", labels, rate, bounds)
    gone = {"namespace": "shop", "pod": "ranker-5d4f7c9b8-zzzzz"}  # of an earlier rollout
    yield PastSeries("nv_inference_request_success", gone, lambda at: at * 5 if at < start + HOUR else None)
    leader = of_pods(estate, LLAMA, "exported_")[0] | {"namespace": "monitoring", "pod": "prometheus-agent-0"}
    for reason, per_second in (("stop", 1.5), ("length", 0.5), ("abort", 1.0)):
        yield PastSeries(
            "vllm:request_success_total", {**leader, "finished_reason": reason}, counting(per_second, start)
        )
    yield PastSeries("vllm:prompt_tokens_total", leader, counting(2000.0, start))
    yield PastSeries("vllm:generation_tokens_total", leader, counting(400.0, start))
    yield from buckets("vllm:time_to_first_token_seconds", leader, 2.0, {"0.25": 0.98, "0.5": 1.0})
    yield from buckets("vllm:request_time_per_output_token_seconds", leader, 2.0, {"0.01": 0.5, "0.02": 0.98})
    for at, labels in enumerate(of_pods(estate, SCORER)):  # Triton with its summary, which is NaN while nothing comes
        yield PastSeries("nv_inference_request_success", {**labels, "model": "m"}, counting(3.0, start))
        for quantile, micros in (("0.5", 9000.0), ("0.99", 33_000.0 + 1000 * at), ("0.999", 90_000.0)):
            name = "nv_inference_request_summary_us"
            yield PastSeries(name, {**labels, "model": "m", "quantile": quantile}, steady(micros))
            yield PastSeries(name, {**labels, "model": "idle", "quantile": quantile}, steady(math.nan))
    for labels in of_pods(estate, TAGGER):  # Triton without latencies
        yield PastSeries("nv_inference_request_success", labels, counting(4.0, start))
    mesh = {"reporter": "destination", "destination_workload": "web", "destination_workload_namespace": "shop"}
    mesh |= of_pods(estate, WEB)[0]
    answered, refused = {**mesh, "response_code": "200"}, {**mesh, "response_code": "503"}
    failed = {**answered, "grpc_response_status": "14"}
    yield PastSeries("istio_requests_total", answered, counting(8.0, start))
    yield PastSeries("istio_requests_total", {**answered, "reporter": "source", "pod": "caller"}, counting(8.0, start))
    yield from buckets("istio_request_duration_milliseconds", answered, 8.0, {"5": 0.98, "10": 1.0})
    for quick in (refused, failed):
        yield PastSeries("istio_requests_total", quick, counting(500.0, start))
        yield from buckets("istio_request_duration_milliseconds", quick, 500.0, {"5": 1.0, "10": 1.0})
    yield from _forgeries(estate, start)
    yield from _jobs(start)
    for name, begins, ends in (
        ("n1", start, math.inf),
        ("n3", start + 2.5 * HOUR, math.inf),
        ("old", start, start + 2 * HOUR),
        ("brief", start + HOUR + 420, start + HOUR + 480),
    ):
        labels = {"node": name, "resource": "nvidia_com_gpu", "unit": "integer"}
        yield PastSeries("kube_node_status_capacity", labels, _between(begins, ends))
    yield PastSeries("kube_node_status_capacity", {"node": "cpu", "resource": "cpu", "unit": "core"}, steady(64.0))
    yield from _gpus(estate)
    yield PastSeries("node_total_hourly_cost", {"node": "n1", "instance": "n1"}, steady(9.25))
    yield PastSeries("node_total_hourly_cost", {"node": "n2", "instance": "n2"}, steady(1e308))


def _forgeries(estate: Estate, start: float) -> Iterator[PastSeries]:
    """What a tenant's pod and a DaemonSet of a similar name count, as if it were the load of others."""
    mine = {"namespace": "evil", "pod": "evil-7c6bd94f5f-00000"}
    theirs = of_pods(estate, RANKER, "exported_")[0]
    yield PastSeries("nv_inference_request_success", {**theirs, **mine}, counting(9000.0, start))
    yield PastSeries("vllm:request_success_total", {**theirs, **mine}, counting(9000.0, start))
    similar = {"namespace": "shop", "pod": "ranker-warm-00000"}
    yield PastSeries("nv_inference_request_success", similar, counting(9000.0, start))
    theirs = {"reporter": "destination", "destination_workload": "web", "destination_workload_namespace": "shop"}
    yield PastSeries("istio_requests_total", {**theirs, **mine, "response_code": "200"}, counting(9000.0, start))


def _between(begins: float, ends: float) -> Callable[[float], float | None]:
    return lambda at: 4.0 if begins <= at <= ends else None


def _jobs(start: float) -> Iterator[PastSeries]:
    """A job that ran for an hour on a GPU that four share, and a Deployment's pod beside it."""
    for pod, owner, place, until in (
        ("nightly-1-x", "Job", "n2", start + 2 * HOUR),
        ("ranker-7c6bd94f5f-00000", "ReplicaSet", "n1", start + 9 * HOUR),
    ):
        labels = {"namespace": "shop", "pod": pod}

        def is_there(at: float, until: float = until) -> float | None:
            return 1.0 if at <= until else None

        def is_done(at: float, until: float = until) -> float:
            return 1.0 if at > until else 0.0

        asked = {**labels, "node": place, "resource": "nvidia_com_gpu", "container": "main"}
        yield PastSeries("kube_pod_container_resource_requests", asked, steady(1.0))
        yield PastSeries("kube_pod_owner", {**labels, "owner_kind": owner, "owner_name": "x"}, steady(1.0))
        yield PastSeries("kube_pod_status_phase", {**labels, "phase": "Running"}, is_there)
        yield PastSeries("kube_pod_status_phase", {**labels, "phase": "Succeeded"}, is_done)


def _gpus(estate: Estate) -> Iterator[PastSeries]:
    holders = [*of_pods(estate, RANKER), *of_pods(estate, LLAMA)]
    for at, labels in enumerate(holders):
        # the scraper has labels of the exporter's own pod
        gpu = {"UUID": f"GPU-{at}", "Hostname": "n1", "namespace": "gpu-operator", "pod": "dcgm-exporter-x"}
        gpu |= {f"exported_{key}": value for key, value in labels.items()}
        yield PastSeries("DCGM_FI_DEV_FB_USED", gpu, steady(1024.0 * (10 + at)))
        yield PastSeries("DCGM_FI_PROF_SM_ACTIVE", gpu, steady(0.1 * (1 + at)))
        yield PastSeries("DCGM_FI_DEV_GPU_UTIL", gpu, steady(90.0))
        if not at:  # a reading that no GPU has, which is dropped
            yield PastSeries("DCGM_FI_PROF_SM_ACTIVE", {**gpu, "device": "odd"}, steady(10.0))
    for name in (OCR, TAGGER):  # one GPU, which both share: a newer exporter repeats its figures
        gpu = {"UUID": "GPU-9", "hostname": "n2", **of_pods(estate, name)[0]}
        gpu |= of_pods(estate, RANKER, "exported_")[0]  # what a pod wrote does not go before what Prometheus says
        yield PastSeries("DCGM_FI_DEV_FB_USED_BYTES", gpu, steady(6.0 * 2**30))
        yield PastSeries("DCGM_FI_DEV_GPU_UTIL_RATIO", gpu, steady(0.6))


@pytest.fixture(scope="module")
def measured(estate: Estate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PrometheusReading, str]]:
    stop = time.time()
    start = (stop - 4 * HOUR) // STEP_SECONDS * STEP_SECONDS
    with prometheus_with(past(estate, start), tmp_path_factory.mktemp("prometheus"), start, stop) as url:
        yield measure(estate, PrometheusServer(url, "", no_pause), 3 * HOUR, time.time(), {}), url


def no_pause(seconds: float) -> None:
    raise AssertionError(f"it asks for {seconds} s")


def sentences(found: PrometheusReading) -> str:
    return "\n".join(map(str, found.unknown))


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


def test_of_a_prometheus_that_ends_in_the_middle_what_was_read_whole_stands(
    estate: Estate, measured: tuple[PrometheusReading, str]
) -> None:
    whole, url = measured
    for answers in range(0, 36, 5):
        found = measure(estate, SourceThatEnds(url, answers), 3 * HOUR, time.time(), {})
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


class SourceBelowZero(SourceThatEnds):
    """Answers as a real Prometheus, but with rates below 0."""

    def over(self, query: str, ends: Sequence[float], label: str = "") -> dict[str, dict[float, float]]:
        return super().over(f"0 - ({query})", ends, label)


def test_rates_below_zero_are_no_load(estate: Estate, measured: tuple[PrometheusReading, str]) -> None:
    found = measure(estate, SourceBelowZero(measured[1], 999), HOUR, time.time(), {})
    assert found.loads.workloads == {}
    assert re.search("load of shop/Deployment/ranker: it says -70[.0-9]* of nv_inference_request", sentences(found))
