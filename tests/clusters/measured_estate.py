"""A small cluster and what a real Prometheus has seen of it: servers of each kind, forgeries, jobs, nodes and GPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from clusters.estate import Estate, WorkloadName
from clusters.metrics.measuring import PrometheusReading
from tests.clusters.history import PastSeries, buckets, counting, steady
from tests.clusters.made_up import Item, deployment, heading, leader_worker_set, node, pod, pod_spec

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
    yield from _namesake()
    yield from leader_worker_set("chat", "llama", pod_spec("vllm:1", 1), [["n1", "n1"]])
    yield from deployment("shop", "web", pod_spec("web:1", 1), ["n3"])
    yield from deployment("shop", "scorer", pod_spec("triton:1", 1), ["n2", "n2"])
    yield from deployment("vision", "ocr", pod_spec("triton:1", 1), ["n2"])
    yield from deployment("vision", "tagger", pod_spec("triton:1", 1), ["n2"])


def _namesake() -> Iterator[Item]:
    """A CronJob that is called as a Deployment, and whose pod waits."""
    owner = heading("batch/v1", "CronJob", "shop", "scorer")
    job = heading("batch/v1", "Job", "shop", "scorer-29000000", owner)
    yield job
    yield pod("shop", "scorer-29000000-x7k2p", pod_spec("batch:1", 1), "", job)


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
    yield PastSeries("istio_requests_total", {**answered, "pod": "web-0"}, counting(40.0, start))  # a StatefulSet's
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
    for resource in ("cpu", "nvidia_com_hostdev"):  # a node without GPUs, with network cards of NVIDIA
        yield PastSeries("kube_node_status_capacity", {"node": "cpu", "resource": resource}, steady(64.0))
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
    for name, owner, place, until in (
        ("nightly-1-x", "Job", "n2", start + 2 * HOUR),
        ("ranker-7c6bd94f5f-00000", "ReplicaSet", "n1", start + 9 * HOUR),
    ):
        labels = {"namespace": "shop", "pod": name}

        def is_there(at: float, until: float = until) -> float | None:
            return 1.0 if at <= until else None

        def is_done(at: float, until: float = until) -> float:
            return 1.0 if at > until else 0.0

        asked = {**labels, "node": place, "resource": "nvidia_com_gpu", "container": "main"}
        yield PastSeries("kube_pod_container_resource_requests", asked, steady(1.0))
        card = {**asked, "resource": "nvidia_com_hostdev"}
        yield PastSeries("kube_pod_container_resource_requests", card, steady(1.0))
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


def no_pause(seconds: float) -> None:
    raise AssertionError(f"it asks for {seconds} s")


def sentences(found: PrometheusReading) -> str:
    return "\n".join(map(str, found.unknown))
