"""Measures how long `assess` takes: `python -m tests.kubernetes.estates.speed --pods 10000 --keep FOLDER`.

It makes a cluster of so many pods with GPUs and a Prometheus that has seen a day of them each minute, and says what the
verb, the API server and Prometheus took. A vLLM that leads a group has 68 series, Istio's proxy 21, a Triton 5, with as
many buckets as these programs have; kube-state-metrics and dcgm-exporter have five more of each pod. Making the past of
10,000 pods takes minutes; `--keep` keeps it for the next run within the hour.
"""

from __future__ import annotations

import argparse
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from tests.clusters.history import SCRAPE_SECONDS, prometheus_over
from tests.clusters.made_up import Item, autoscaler, deployment, leader_worker_set, node, pod_spec
from tests.kubernetes.estates.blocks import EncodedChunk, Labels, encode_chunks, write_block
from tests.kubernetes.estates.shapes import DAY_MINUTES, Series
from tests.kubernetes.filling import ALL_LISTS, RecordedCluster
from tests.kubernetes.kubeconfig import read_connection
from tests.kubernetes.server import running_api_server

ASSESS = (sys.executable, "-c", "import sys; from cli.main import main; sys.exit(main())", "assess")
REPLICAS = 20  # pods of a workload
HOURS_BEFORE, HOURS_AFTER = 25, 2  # rates of the first step need samples before it
HOURS_OF_A_BLOCK = 6
SHAPES = 16  # of loads: each is the day of another workload
AT_NIGHT = 0.6  # of the replicas of an autoscaled workload
SECONDS = 0.3  # that a request takes at no load
LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560,
)  # fmt: skip
TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
VLLM = {  # as many buckets as it has
    "vllm:e2e_request_latency_seconds": LATENCY,
    "vllm:time_to_first_token_seconds": FIRST_TOKEN,
    "vllm:request_time_per_output_token_seconds": TOKEN,
}
ISTIO = (0.5, 1, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 1e4, 3e4, 6e4, 3e5, 6e5, 18e5, 36e5)  # milliseconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--keep", type=Path, help="folder of the past")
    parser.add_argument("words", nargs="*", help="options of assess, after --")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_api_server(Path(folder)) as server:
        past = given.keep or Path(folder) / "past"
        items = list(draw_items(given.pods))
        if not (past / "data").exists():
            make_past(items, past)
        cluster = RecordedCluster(server)
        with cluster.filled(items), prometheus_over(past) as url:
            user = cluster.add_reader("reader", ALL_LISTS)
            words = ("--kubeconfig", str(user.kubeconfig), "--prometheus", url, "--from", "24h", *given.words)
            for _ in range(given.runs):
                before = _read_seconds(url), _read_seconds(server.url, server.admin)
                began = time.monotonic()
                with (past / "printed.txt").open("w") as printed:
                    process = subprocess.Popen([*ASSESS, *words], stdout=printed)
                    _, status, used = os.wait4(process.pid, 0)
                wall = time.monotonic() - began
                after = _read_seconds(url), _read_seconds(server.url, server.admin)
                print(
                    f"{given.pods} pods: {wall:.1f} s, exit {os.waitstatus_to_exitcode(status)}; CPU: assess "
                    f"{used.ru_utime + used.ru_stime:.1f}, Prometheus {after[0] - before[0]:.1f}, "
                    f"API server {after[1] - before[1]:.1f} s; assess {used.ru_maxrss / 1024:.0f} MiB",
                    flush=True,
                )
    return 0


def draw_items(pods: int) -> Iterator[Item]:
    """Gives nodes and workloads of three kinds in turn: vLLM in groups, Istio, and Triton on shared GPUs."""
    count = max(3, pods // REPLICAS)
    for at in range(count):
        name, kind = f"model-{at}", at % 3
        shared = 4 if kind == 2 else 1
        places = [f"{name}-node-{place // (8 * shared)}" for place in range(REPLICAS)]
        for place in sorted(set(places)):
            yield node(
                place,
                8,
                "NVIDIA-H100-80GB-HBM3",
                "p5.48xlarge",
                replicas=shared,
                sharing="mps" if shared > 1 else "none",
            )
        spec, namespace = pod_spec(f"registry.example/{name}:1", 1), f"team-{at % 12}"
        if kind == 0:
            groups = [places[first : first + 2] for first in range(0, REPLICAS, 2)]
            yield from leader_worker_set(namespace, name, spec, groups)
        else:
            yield from deployment(namespace, name, spec, places)
        if at % 2:
            yield autoscaler(namespace, name, 2, REPLICAS, kind="LeaderWorkerSet" if kind == 0 else "Deployment")


def make_past(items: Sequence[Item], folder: Path) -> None:
    """Writes what Prometheus has seen, as blocks of hours that it takes as its own."""
    first = (int(time.time()) // 3600 - HOURS_BEFORE) * 3600
    minutes = (HOURS_BEFORE + HOURS_AFTER) * 60
    moments = [(first + at * SCRAPE_SECONDS) * 1000 for at in range(minutes)]
    shapes = [_Day(shape, moments) for shape in range(SHAPES)]
    series = sorted(_series(items), key=lambda each: each[0])
    length = HOURS_OF_A_BLOCK * 60
    for number, start in enumerate(range(-(first // 60 % length), minutes, length)):  # blocks begin at these moments
        part = slice(max(0, start), min(minutes, start + length))
        encode = cache(lambda shape, what, is_away, part=part: shapes[shape].encode(what, is_away, part))
        chosen = [(labels, encode(*how)) for labels, *how in series]
        begin = first + start * SCRAPE_SECONDS
        span = begin * 1000, (begin + length * SCRAPE_SECONDS) * 1000
        write_block(folder / "data", number, span, [(labels, chunks) for labels, chunks in chosen if chunks])


class _Day:
    """The load of a replica, minute by minute, and all that a server counts of it."""

    def __init__(self, shape: int, moments: Sequence[int]) -> None:
        self._moments = moments
        at = np.arange(len(moments))
        wave = 0.4 + 0.4 * np.cos(2 * np.pi * (at / DAY_MINUTES - shape / SHAPES))
        self._load = np.clip(wave + np.random.default_rng(shape).normal(0, 0.05, len(at)), 0.01, 1.0)
        self._is_there = wave >= 0.3

    def encode(self, what: str, is_away: bool, part: slice) -> list[EncodedChunk]:
        """Returns the samples of a part of the time, where the replica was there."""
        places = np.arange(len(self._moments))[part]
        if is_away:
            places = places[self._is_there[part]]
        moments, values = [self._moments[at] for at in places], self._values(what)[places].tolist()
        return encode_chunks(moments, values, SCRAPE_SECONDS * 1000)

    def _values(self, what: str) -> Series:
        kind, _, amount = what.partition(" ")
        if kind == "steady":
            return np.full(len(self._load), float(amount))
        if kind == "busy":
            return np.round(float(amount) * self._load, 3)
        if kind == "quantile":  # microseconds
            return np.asarray(np.round(1e6 * SECONDS * (1 + self._load) * -np.log(1 - float(amount))))
        within = 1.0 if kind == "counter" else 1 - np.exp(-float(amount) / (SECONDS * (1 + self._load)))
        per_request = float(amount) if kind == "counter" else 1.0
        return np.asarray(np.cumsum(np.round(60 * self._load * within * per_request)), np.float64)


def _series(items: Sequence[Item]) -> Iterator[tuple[Labels, int, str, bool]]:
    """Gives the labels of each series, its shape, what it shows, and whether it is away at night."""
    held: dict[str, int] = {}
    for item in items:
        if item["kind"] == "Node":
            name = item["metadata"]["name"]
            for resource, count in item["status"]["capacity"].items():
                if resource in ("nvidia.com/gpu", "cpu"):
                    named = resource.replace(".", "_").replace("/", "_")
                    yield _label("kube_node_status_capacity", node=name, resource=named), 0, f"steady {count}", False
        if item["kind"] != "Pod":
            continue
        labels = {"namespace": item["metadata"]["namespace"], "pod": item["metadata"]["name"]}
        owner = item["metadata"]["ownerReferences"][0]["kind"]
        yield _label("kube_pod_owner", **labels, owner_kind=owner), 0, "steady 1", False
        yield _label("kube_pod_status_phase", **labels, phase="Running"), 0, "steady 1", False
        place = item["spec"]["nodeName"]
        where = {"node": place, "resource": "nvidia_com_gpu", "container": "main"}
        yield _label("kube_pod_container_resource_requests", **labels, **where), 0, "steady 1", False
        model = item["metadata"]["labels"]["app"]
        number = int(model.rsplit("-", 1)[1])
        kind, slot = number % 3, held.get(place, 0)
        held[place] = slot + 1
        gpu = {"UUID": f"GPU-{place}-{slot // (4 if kind == 2 else 1)}", "Hostname": place}
        who = {f"exported_{key}": text for key, text in labels.items()}
        yield _label("DCGM_FI_DEV_FB_USED", **gpu, **who), 0, "steady 9000", False
        yield _label("DCGM_FI_PROF_SM_ACTIVE", **gpu, **who), number % SHAPES, "busy 0.8", False
        is_away = bool(number % 2) and slot % 10 >= 10 * AT_NIGHT
        for name, more, what in _counters(kind, item):
            yield _label(name, **labels, **more), number % SHAPES, what, is_away


def _counters(kind: int, item: Item) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Gives what a pod's server counts; of a group its leader's alone."""
    metadata = item["metadata"]
    if kind == 0 and metadata["ownerReferences"][0]["name"] != metadata["labels"]["app"]:
        return
    if kind == 0:
        model = {"model_name": metadata["labels"]["app"]}
        yield "vllm:request_success_total", {**model, "finished_reason": "stop"}, "counter 1"
        yield "vllm:prompt_tokens_total", model, "counter 900"
        yield "vllm:generation_tokens_total", model, "counter 120"
        for histogram, bounds in VLLM.items():
            yield from _buckets(histogram, model, bounds, 1)
    elif kind == 1:
        workload = {
            "destination_workload": metadata["labels"]["app"], "destination_workload_namespace": metadata["namespace"],
            "reporter": "destination", "response_code": "200",
        }  # fmt: skip
        yield "istio_requests_total", workload, "counter 1"
        yield from _buckets("istio_request_duration_milliseconds", workload, ISTIO, 1000)
    else:
        yield "nv_inference_request_success", {"model": metadata["labels"]["app"], "version": "1"}, "counter 1"
        for quantile in (0.5, 0.9, 0.95, 0.99):
            more = {"model": metadata["labels"]["app"], "quantile": f"{quantile}"}
            yield "nv_inference_request_summary_us", more, f"quantile {quantile}"


def _buckets(
    histogram: str, labels: Mapping[str, str], bounds: Sequence[float], units: int
) -> Iterator[tuple[str, Mapping[str, str], str]]:
    """Gives the buckets of a histogram that counts in so many units a second."""
    for bound in bounds:
        yield f"{histogram}_bucket", {**labels, "le": f"{bound:.10g}"}, f"within {bound / units}"
    yield f"{histogram}_bucket", {**labels, "le": "+Inf"}, "counter 1"


def _label(name: str, /, **labels: str) -> Labels:
    return tuple(sorted({"__name__": name, **labels}.items()))


def _read_seconds(url: str, kubeconfig: Path | None = None) -> float:
    """Returns the CPU seconds that a server says it has used."""
    asked, trusted = urllib.request.Request(f"{url}/metrics"), None
    if kubeconfig:
        text = kubeconfig.read_text()
        trusted = ssl.create_default_context(cadata=read_connection(text)[1])
        asked.add_header("Authorization", f"Bearer {json.loads(text)['users'][0]['user']['token']}")
    with urllib.request.urlopen(asked, context=trusted, timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("process_cpu_seconds_total"))


if __name__ == "__main__":
    sys.exit(main())
