"""Compares online placement on Alibaba's openb cluster by FGD's protocol: our policy, FGD and best fit.

8,152 pods and resampled pods up to 130 % of the fleet's GPUs arrive singly, in the order of seed 42, and never
leave; the figure is the share of GPU capacity that is allocated in the end. Policies know the declared pod list, as
FGD does in its simulator, and nothing of the order."""

from __future__ import annotations

import csv
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from lab.baselines.online import (
    BestFit,
    Fragmentation,
    GpuRequest,
    Host,
    LeastWaste,
    OnlineFleet,
    Policy,
    Workload,
    draw_arrivals,
    place_all,
    rehearse,
)
from lab.baselines.online.workload import GPU_MILLI
from lab.data.missing_data import DataMissing
from lab.published.pod_mixes import mixes

FILES = (
    "openb_node_list_gpu_node.csv",
    "openb_pod_list_default.csv",
    "arrival_order_seed42.csv",
    "node_rank_seed42.csv",
)
DEMAND_SHARE = 1.3  # of the fleet's GPUs, as in FGD's protocol


@dataclass(frozen=True)
class OpenbCluster:
    """The fleet in the order that breaks ties, the declared pods, and the arrivals."""

    hosts: tuple[Host, ...]
    declared: tuple[GpuRequest, ...]
    arrivals: tuple[GpuRequest, ...]

    @property
    def gpu_milli(self) -> int:
        return sum(host.gpus for host in self.hosts) * GPU_MILLI


def rows(folder: Path, name: str) -> list[dict[str, str]]:
    """Reads a file of the folder as rows; the error names a missing file."""
    path = folder / name
    if not path.is_file():
        raise DataMissing(f"{path} is missing; --data names a folder with {', '.join(FILES)}")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def read(data_dir: Path) -> OpenbCluster:
    """Reads the cluster from its files, in `data_dir` or its subfolder openb."""
    folder = data_dir / "openb" if (data_dir / "openb").is_dir() else data_dir
    rank = {row["sn"]: int(row["rank"]) for row in rows(folder, "node_rank_seed42.csv")}
    hosts = [
        Host(row["sn"], int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu"]), row["model"])
        for row in rows(folder, "openb_node_list_gpu_node.csv")
    ]
    pods = {
        row["name"]: GpuRequest(
            int(row["cpu_milli"]), int(row["memory_mib"]), int(row["gpu_milli"]), int(row["num_gpu"])
        )
        for row in rows(folder, "openb_pod_list_default.csv")
    }
    order = [row["pod"].split("-tuned-")[0] for row in rows(folder, "arrival_order_seed42.csv")]
    return OpenbCluster(
        tuple(sorted(hosts, key=lambda host: rank[host.name])),
        tuple(pods.values()),
        tuple(pods[name] for name in order),
    )


def policies(hosts: Sequence[Host], workload: Workload) -> dict[str, Policy]:
    """Returns the policies to compare, by name."""
    ours = LeastWaste(workload)
    return {
        "ours": ours,
        "oursHoldingBack": rehearse(hosts, ours, DEMAND_SHARE),
        "fgd": Fragmentation(workload),
        "bestfit": BestFit(),
    }


def replay(
    cluster: OpenbCluster, policy: Policy, clock: Callable[[], int] = time.perf_counter_ns
) -> dict[str, float | int]:
    """Places all arrivals under a policy."""
    fleet = OnlineFleet(cluster.hosts, policy, cluster.declared)
    took: list[int] = []
    placed = held = 0
    for request in cluster.arrivals:
        began = clock()
        where = fleet.place(request)
        took.append(clock() - began)
        placed += where is not None
        held += where is None and fleet.could_hold(request)
    return {
        "allocation": round(100 * fleet.allocated_gpu_milli() / cluster.gpu_milli, 3),
        "p50_us": round(statistics.median(took) / 1000, 1),
        "p99_us": round(sorted(took)[int(0.99 * len(took))] / 1000, 1),
        "placed": placed,
        "held_back": held,
    }


def place_at_once(
    cluster: OpenbCluster, workload: Workload, clock: Callable[[], int] = time.perf_counter_ns
) -> dict[str, float]:
    """Places all arrivals at once: what could be reached without an order."""
    fleet = OnlineFleet(cluster.hosts, LeastWaste(workload), cluster.declared)
    began = clock()
    placed = place_all(fleet, cluster.arrivals)
    seconds = (clock() - began) / 1e9
    return {
        "allocation": round(100 * fleet.allocated_gpu_milli() / cluster.gpu_milli, 3),
        "placed": sum(where is not None for where in placed),
        "seconds": round(seconds, 2),
    }


def mixed(cluster: OpenbCluster, seed: int) -> Iterator[tuple[str, OpenbCluster]]:
    """Yields the cluster with each mix derived from its list, and arrivals drawn from that mix."""
    for name, declared in mixes(cluster.declared, cluster.hosts, seed).items():
        order = Random(f"{seed} {name}")  # noqa: S311 (not for secrets)
        shuffled = order.sample(declared, len(declared))
        asked = sum(request.total_gpu_milli for request in declared)
        missing = DEMAND_SHARE * cluster.gpu_milli - asked
        more = draw_arrivals(declared, [1.0] * len(declared), missing, order)
        arrivals = shuffled[: _enough(shuffled, DEMAND_SHARE * cluster.gpu_milli)]
        yield name, OpenbCluster(cluster.hosts, tuple(declared), (*arrivals, *more))


def _enough(requests: Sequence[GpuRequest], gpu_milli: float) -> int:
    """Returns how many of the first requests ask for this much GPU; all if they ask for less."""
    asked = 0
    for index, request in enumerate(requests):
        if asked >= gpu_milli:
            return index
        asked += request.total_gpu_milli
    return len(requests)


def run_mixes(cluster: OpenbCluster, seeds: int) -> list[dict[str, Any]]:
    """Returns what each policy allocates of the GPUs (%), by mix and seed."""
    rows: list[dict[str, Any]] = []
    for seed in range(seeds):
        for name, asked in mixed(cluster, seed):
            found = policies(asked.hosts, Workload.count(asked.declared))
            allocated = {policy: replay(asked, rule)["allocation"] for policy, rule in found.items()}
            rows.append({"mix": name, "seed": seed, "arrivals": len(asked.arrivals), **allocated})
    return rows


def run(data_dir: Path | str, mix_seeds: int = 0) -> dict[str, Any]:
    """Runs every policy on the same arrivals: {"policies": {name: {"allocation", "p50_us", ...}}, "rows": [by mix]}."""
    cluster = read(Path(data_dir))
    rows = {"rows": run_mixes(cluster, mix_seeds)} if mix_seeds else {}
    workload = Workload.count(cluster.declared)
    return {
        **rows,
        "policies": {name: replay(cluster, policy) for name, policy in policies(cluster.hosts, workload).items()},
        "batch": place_at_once(cluster, workload),
        "hosts": len(cluster.hosts),
        "arrivals": len(cluster.arrivals),
    }
