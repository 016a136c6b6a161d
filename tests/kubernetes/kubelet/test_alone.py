"""Copies that are pods go on while nobody answers for them: their API server hangs, or their process has ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.node.node import LocalNode
from agents.runtime import proc
from tests.kubernetes.kubelet.pod_node import budgeted_namespace, pod_node
from tests.kubernetes.nodes import RunningCluster
from tests.support.haproxy import running_gateway
from tests.support.load import steady_load
from tests.support.nodes import assigned, copy_of, kill, ready, served
from tests.support.patience import until

pytestmark = pytest.mark.slow
PATH = "/shop/search/v1/models/resnet:infer"


def serves(node: LocalNode, *names: str) -> bool:
    return ready(node, *names) and all(node.keeper.in_force(copy) for copy in node.keeper.copies())


def test_while_the_api_server_hangs_no_request_fails_a_dead_copy_has_no_route_and_a_change_waits(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        running_gateway(tmp_path / "gateway") as gateway,
        pod_node(pod_cluster, namespace, "alone", tmp_path) as made,
        made.running_agent(routes=gateway.routes()) as node,
    ):
        node.offer(assigned(1, served("search-1", sm=20), served("other-1", sm=20)))
        until(lambda: serves(node, "search-1", "other-1"), "both serve")
        first, other = copy_of(node, "search-1"), copy_of(node, "other-1")
        assert other.running
        with steady_load(gateway.port, PATH, rate_per_second=60.0, method="POST", body="{}") as load:
            with pod_cluster.server.hanging():
                kill(other.running.pid)
                until(lambda: not node.keeper.in_force(other), "the dead one gets no requests")
                node.offer(assigned(2, served("search-1", sm=40)))
                load.await_answers(120)
                assert first.running in [copy.running for copy in node.keeper.copies()]
            until(lambda: serves(node, "search-1") and copy_of(node, "search-1").id != first.id, "the share changes")
            load.await_answers(30)
            assert load.stop().failed == ()
        assert copy_of(node, "search-1").wanted.sm_percent == 40


def test_an_agent_that_starts_while_the_api_server_hangs_goes_on_with_its_copies_and_says_why_none_starts(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        pod_node(pod_cluster, namespace, "early", tmp_path) as made,
    ):
        with made.running_agent() as node:
            node.offer(assigned(1, served("search-1", sm=20)))
            until(lambda: ready(node, "search-1"), "the copy is ready")
            first = copy_of(node, "search-1")
        with pod_cluster.server.hanging(), made.running_agent(2) as node:
            assert node.strangers == ()
            node.offer(assigned(1, served("search-1", sm=20)))
            assert (copy_of(node, "search-1").running, copy_of(node, "search-1").stage) == (first.running, first.stage)
            assert node.cluster_away
        with made.running_agent(3) as node:
            node.offer(assigned(2, served("search-1", sm=20), served("other-1", sm=20)))
            until(lambda: ready(node, "search-1", "other-1"), "it starts copies again")
            assert copy_of(node, "search-1").running == first.running
            assert node.cluster_away == ""


def test_a_copy_whose_process_is_killed_has_a_successor_and_does_not_run_again_itself(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        pod_node(pod_cluster, namespace, "killed", tmp_path) as made,
        made.running_agent() as node,
    ):
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "the copy is ready")
        first = copy_of(node, "search-1")
        assert first.running
        kill(first.running.pid)
        until(lambda: ready(node, "search-1") and copy_of(node, "search-1").id != first.id, "its successor is ready")
        mark = f"GPUWRIGHT_COPY={first.id}".encode()
        until(lambda: not any(mark in proc.read(f"/proc/{pid}/environ") for pid in proc.list_pids()), "it is gone")


def test_a_copy_whose_replicas_somebody_raises_goes_on_as_the_only_one(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        pod_node(pod_cluster, namespace, "raised", tmp_path) as made,
        made.running_agent() as node,
    ):
        node.offer(assigned(1, served("search-1")))
        until(lambda: ready(node, "search-1"), "the copy is ready")
        first = copy_of(node, "search-1")
        pod_cluster.kubectl("-n", namespace, "scale", "replicasets", "--all", "--replicas=2")
        made_pods: set[str] = set()

        def is_alone_again() -> bool:
            pods = pod_cluster.read("-n", namespace, "get", "pods", "-l", "gpuwright.io/part=copy")["items"]
            made_pods.update(pod["metadata"]["uid"] for pod in pods)
            return len(made_pods) == 2 and len(pods) == 1

        until(is_alone_again, lambda: made_pods)
        assert ready(node, "search-1")
        assert copy_of(node, "search-1") == first
