"""The testbed's fleet keeps its promises and its books, by processes as by pods: on one plan, for the same money."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.kubelet.pod_node import budgeted_namespace
from tests.kubernetes.nodes import running_cluster
from tests.proofs.demo_fleet import make_process_node, run_demo
from tests.proofs.pods.agents import make_pod_node
from tests.support.postgres import DatabaseServer
from tests.support.soak import SOAK, scaled

CENT = 10_000_000  # billionths


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_demo_fleet_serves_and_costs_the_same_by_pods_as_by_processes(
    postgres: DatabaseServer, tmp_path: Path
) -> None:
    seconds = scaled(600, 10)
    for name in ("processes", "pods", "cluster"):
        (tmp_path / name).mkdir()
    url = postgres.create()
    with running_cluster(tmp_path / "cluster") as cluster, budgeted_namespace(cluster) as namespace:
        pods = run_demo(url, tmp_path / "pods", seconds, make_pod_node(cluster, namespace))
    postgres.drop(url)
    url = postgres.create()
    processes = run_demo(url, tmp_path / "processes", seconds, make_process_node)
    postgres.drop(url)
    for seen in (pods, processes):
        assert (seen.ledger.wrong, seen.ledger.unmarked) == ([], 0)
        assert not any(service.failed for service in seen.services.values()), str(seen)
        # Busy cores of this machine make answers late, which says nothing of the fleet.
        assert seen.is_kept or not SOAK, str(seen)
    assert sum(pods.nano.values()) == pytest.approx(sum(processes.nano.values()), abs=CENT)
    if pods.plan == processes.plan and not pods.plans + processes.plans:
        assert pods.nano == pytest.approx(processes.nano, abs=CENT)
