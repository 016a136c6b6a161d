"""The openb benchmark on a small cluster of our own: it reads, replays, compares, and says what is missing."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from lab.baselines.online import GpuRequest, Host, LeastWaste, OnlineFleet, Workload, place_all
from lab.data.missing_data import DataMissing
from lab.published import openb
from lab.published.pod_mixes import mixes

PODS = [(4000, 8192, 1, 1000), (2000, 4096, 1, 470), (1000, 2048, 1, 810), (8000, 8192, 0, 0), (8000, 8192, 2, 1000)]


def write(path: Path, header: list[str], rows: list[tuple[object, ...]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four hosts of two sizes and 130 % of demand."""
    data = tmp_path / "openb"
    data.mkdir()
    nodes = [(f"node-{i}", 32000, 131072, 2 + 2 * (i % 2), "T4") for i in range(4)]
    write(data / "openb_node_list_gpu_node.csv", ["sn", "cpu_milli", "memory_mib", "gpu", "model"], list(nodes))
    write(data / "node_rank_seed42.csv", ["sn", "rank"], [(f"node-{i}", 3 - i) for i in range(4)])
    pods = [(f"pod-{i}", *PODS[i % len(PODS)]) for i in range(15)]
    write(data / "openb_pod_list_default.csv", ["name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli"], list(pods))
    order = [(i, f"pod-{i}") for i in range(15)] + [(15 + i, f"pod-{i}-tuned-{i}") for i in range(5)]
    write(data / "arrival_order_seed42.csv", ["i", "pod"], list(order))
    return tmp_path


def test_the_cluster_is_read_in_the_order_that_breaks_ties(folder: Path) -> None:
    cluster = openb.read(folder)
    assert [host.name for host in cluster.hosts] == ["node-3", "node-2", "node-1", "node-0"]
    assert len(cluster.declared) == 15
    assert cluster.arrivals[15:] == cluster.arrivals[:5]
    assert cluster.gpu_milli == 12_000


def test_every_policy_is_replayed_on_the_same_arrivals_and_repeats_itself(folder: Path) -> None:
    first, second = openb.run(folder), openb.run(folder / "openb")
    assert {"ours", "fgd", "bestfit"} <= set(first["policies"])
    for name, row in first["policies"].items():
        assert 0 < row["allocation"] <= 100
        assert row["allocation"] == second["policies"][name]["allocation"]
        assert row["p50_us"] > 0
    assert first["batch"]["allocation"] >= first["policies"]["bestfit"]["allocation"]


@pytest.mark.slow
def test_mixes_are_derived_from_the_list_and_repeat_themselves(folder: Path) -> None:
    rows = openb.run(folder, 1)["rows"]
    assert rows == openb.run(folder, 1)["rows"]
    assert {"default", "several-50", "all-shared", "none-shared", "typed-50-even"} <= {row["mix"] for row in rows}
    assert all(0 < row[name] <= 100 for row in rows for name in ("ours", "oursHoldingBack", "fgd", "bestfit"))


def test_a_mix_has_the_pods_that_its_name_says(folder: Path) -> None:
    cluster = openb.read(folder)
    found = mixes(cluster.declared, cluster.hosts, 0)
    gpus = {name: [pod for pod in pods if pod.gpus] for name, pods in found.items()}
    assert all(len(pods) == 12 for pods in gpus.values())
    assert sum(pod.gpus > 1 for pod in gpus["several-50"]) == 6
    assert all(pod.is_part for pod in gpus["all-shared"])
    assert not any(pod.is_part for pod in gpus["none-shared"])
    assert {pod.gpu_types for pod in gpus["typed-80"]} <= {(), ("T4",)}
    assert any(pod.gpu_types for pod in gpus["typed-80"])


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"node_rank_seed42\.csv is missing"):
        openb.read(tmp_path)


def test_in_a_batch_wide_requests_come_first_and_wasteful_parts_after_other_parts() -> None:
    wasteful, half, wide = (
        GpuRequest(1000, 1024, 810, 1),
        GpuRequest(1000, 1024, 500, 1),
        GpuRequest(1000, 1024, 1000, 2),
    )
    requests = [wasteful, half, wide, half]
    fleet = OnlineFleet([Host("h", 64000, 262144, 3)], LeastWaste(Workload.count(requests)))
    placed = place_all(fleet, requests)
    assert placed[0] is None
    assert fleet.allocated_gpu_milli() == 3000
