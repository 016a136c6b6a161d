"""What Prometheus has seen of a drawn estate: counters of its model servers, its GPUs, and who asked for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from tests.clusters.history import SCRAPE_SECONDS, PastSeries, steady
from tests.clusters.made_up import Item
from tests.kubernetes.estates.drawing import DrawnEstate
from tests.kubernetes.estates.services import DrawnService
from tests.kubernetes.estates.shapes import Series

LATENCY_MS = (100, 250, 500, 1000, 2000, 3500, 5000, 7500, 10_000, 15_000, 20_000, 30_000, 45_000, 60_000, 90_000)
FIRST_TOKEN_MS = (100, 250, 500, 750, 1000, 1500, 2000, 3000, 4000, 5000, 7500, 10_000, 20_000, 60_000)
TOKEN_MS = (10, 20, 25, 30, 35, 40, 50, 60, 75, 100, 150, 200)
HISTOGRAMS = {
    "latency": ("istio_request_duration_milliseconds", LATENCY_MS, 1.0),
    "first_token": ("vllm:time_to_first_token_seconds", FIRST_TOKEN_MS, 0.001),
    "token": ("vllm:request_time_per_output_token_seconds", TOKEN_MS, 0.001),
}
QUANTILES = (50, 90, 95, 99, 99.9)  # of Triton's summaries, each of a replica's last minute


def past_of(estate: DrawnEstate, start: float) -> Iterator[PastSeries]:
    """Gives all series from `start` on, for as long as loads were drawn."""
    pods = [item for item in estate.items if item["kind"] == "Pod"]
    for service in estate.services:
        yield from _counters(service, _standing(service, pods), start)
    yield from _requested(pods)
    yield from _gpus(estate, pods)


def _standing(service: DrawnService, pods: list[Item]) -> list[str]:
    """Returns the pods whose servers count, one of each replica of now."""
    found = [item["metadata"]["name"] for item in pods if item["metadata"]["labels"].get("app") == service.name]
    if service.kind == "LeaderWorkerSet":
        found = [name for name in found if name.count("-") == service.name.count("-") + 1]
        return sorted(found, key=lambda name: int(name.rsplit("-", 1)[1]))
    return sorted(found)


def _counters(service: DrawnService, standing: list[str], start: float) -> Iterator[PastSeries]:
    """Gives what each replica counted while it was there. One that comes back is another pod and begins at nothing."""
    moments = np.arange(len(service.replicas) + 1, dtype=np.float64) * SCRAPE_SECONDS
    for each in range(int(service.replicas.max())):
        is_there = np.append(service.replicas > each, service.replicas[-1] > each)
        edges = np.flatnonzero(np.diff(np.concatenate(([0], is_there.astype(int), [0]))))
        for at, (first, stop) in enumerate(zip(edges[::2], edges[1::2], strict=True)):
            is_now = stop == len(is_there)
            if service.kind == "LeaderWorkerSet":
                name = f"{service.name}-{each}"
            else:
                name = standing[each] if is_now else f"{service.name}-5d4f7c9b8-g{at % 100:02d}{each % 100:02d}"
            labels = {"namespace": service.namespace, "pod": name}
            if is_now and service.kind != "LeaderWorkerSet":
                assert name == standing[each]
            yield from _of_replica(service, each, labels, moments, (int(first), int(stop)), start)


def _of_replica(
    service: DrawnService, each: int, labels: Mapping[str, str], moments: Series, time: tuple[int, int], start: float
) -> Iterator[PastSeries]:
    past, (first, stop) = service.past, time
    counted = (past.replica == each) & (past.done >= moments[first])
    done, seen = past.done[counted], moments[first:stop]

    def counter(name: str, at: Series, amounts: Series | None = None, **more: str) -> PastSeries:
        order = np.argsort(at)
        total = np.concatenate(([0.0], np.cumsum(np.ones(len(at)) if amounts is None else amounts[order])))
        values = total[np.searchsorted(at[order], seen, side="right")]
        return PastSeries(name, {**labels, **more}, recorded(values, start + moments[first]))

    if service.truth.server == "vllm":
        yield counter("vllm:request_success_total", done, finished_reason="stop", model_name=service.name)
        yield counter("vllm:prompt_tokens_total", done, past.input_tokens[counted], model_name=service.name)
        yield counter("vllm:generation_tokens_total", done, past.output_tokens[counted], model_name=service.name)
    elif service.truth.server == "istio":
        workload = {"destination_workload": service.name, "destination_workload_namespace": service.namespace}
        labels = {**labels, **workload, "reporter": "destination", "response_code": "200"}
        yield counter("istio_requests_total", done)
    else:
        yield counter("nv_inference_request_success", done, model=service.name, version="1")
        yield from _summary({**labels, "model": service.name}, done, past.times_ms["latency"][counted], seen, start)
        return
    for time_name, times in past.times_ms.items():
        histogram, bounds, unit = HISTOGRAMS[time_name]
        mine = times[counted]
        for bound in bounds:
            yield counter(f"{histogram}_bucket", done[mine <= bound], le=f"{bound * unit:g}")
        yield counter(f"{histogram}_bucket", done, le="+Inf")


def _summary(
    labels: Mapping[str, str], done: Series, times_ms: Series, seen: Series, start: float
) -> Iterator[PastSeries]:
    """Gives the quantiles of the minute before each scrape; none where nothing was answered in it."""
    order = np.argsort(done)
    edges = np.searchsorted(done[order], np.concatenate(([seen[0] - SCRAPE_SECONDS], seen)), side="right")
    minutes = np.split(times_ms[order], edges)[1:-1]
    found = np.array([
        np.percentile(each, QUANTILES, method="higher") if len(each) else (np.nan,) * len(QUANTILES)
        for each in minutes
    ])  # fmt: skip
    for at, quantile in enumerate(QUANTILES):
        name = {**labels, "quantile": f"{quantile / 100:g}"}
        yield PastSeries("nv_inference_request_summary_us", name, recorded(1000 * found[:, at], start + seen[0]))


def recorded(values: Series, start: float) -> Callable[[float], float | None]:
    """Returns a function of the moment: one value for each scrape from `start` on, and none beyond them."""
    known = [None if value != value else value for value in values.tolist()]

    def value(moment: float) -> float | None:
        at = round((moment - start) / SCRAPE_SECONDS)
        return known[at] if 0 <= at < len(known) else None

    return value


def _requested(pods: list[Item]) -> Iterator[PastSeries]:
    """What kube-state-metrics says of pods that stand now."""
    for item in pods:
        labels = {"namespace": item["metadata"]["namespace"], "pod": item["metadata"]["name"]}
        owner = item["metadata"].get("ownerReferences", [{"kind": "<none>"}])[0]["kind"]
        yield PastSeries("kube_pod_owner", {**labels, "owner_kind": owner}, steady(1.0))
        yield PastSeries("kube_pod_status_phase", {**labels, "phase": item["status"]["phase"]}, steady(1.0))
        asked = item["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu")
        if asked and "nodeName" in item["spec"]:
            where = {"node": item["spec"]["nodeName"], "resource": "nvidia_com_gpu", "container": "main"}
            yield PastSeries("kube_pod_container_resource_requests", {**labels, **where}, steady(float(asked)))


def _gpus(estate: DrawnEstate, pods: list[Item]) -> Iterator[PastSeries]:
    """What dcgm-exporter says of each GPU, once for each pod that holds a part of it."""
    held: dict[str, list[dict[str, str]]] = {}
    for item in pods:
        asked = int(item["spec"]["containers"][0]["resources"]["limits"].get("nvidia.com/gpu", 0))
        who = {"exported_namespace": item["metadata"]["namespace"], "exported_pod": item["metadata"]["name"]}
        held.setdefault(item["spec"].get("nodeName", ""), []).extend([who] * asked)
    for item in estate.items:
        if item["kind"] == "Node":
            name = item["metadata"]["name"]
            slots = held.get(name, [])
            for at in range(estate.kind.gpus):
                gpu = {"UUID": f"GPU-{name}-{at}", "Hostname": name}
                for who in slots[at * estate.kind.shared_by : (at + 1) * estate.kind.shared_by] or [{}]:
                    yield PastSeries("DCGM_FI_DEV_FB_USED", {**gpu, **who}, steady(9000.0 if who else 1.0))
                    yield PastSeries("DCGM_FI_PROF_SM_ACTIVE", {**gpu, **who}, steady(0.4 if who else 0.0))
