"""Copies that others take away lose no request: kubectl drains a node, or deletes a pod, under load."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.node.cluster_notices import TAKES_AWAY
from agents.node.node import LocalNode
from tests.kubernetes.cluster import Refused
from tests.kubernetes.kubelet.pod_node import budgeted_namespace, pod_node
from tests.kubernetes.nodes import RunningCluster
from tests.support.haproxy import Gateway, running_gateway
from tests.support.load import Load, steady_load
from tests.support.nodes import assigned, copy_of, ready, served
from tests.support.patience import until

pytestmark = pytest.mark.slow
RATE = 60.0
DRAIN = ("drain", "drained", "--ignore-daemonsets", "--delete-emptydir-data")


@contextmanager
def loaded(gateway: Gateway) -> Iterator[Load]:
    path = "/shop/search/v1/models/resnet:infer"
    with steady_load(gateway.port, path, rate_per_second=RATE, method="POST", body="{}") as load:
        load.await_answers(30)
        yield load


def serves(node: LocalNode, *names: str) -> bool:
    return ready(node, *names) and all(node.keeper.in_force(copy) for copy in node.keeper.copies())


def test_a_node_that_kubectl_drains_is_empty_only_once_others_serve(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    wanted = served("search-1")
    with (
        budgeted_namespace(pod_cluster) as namespace,
        running_gateway(tmp_path / "gateway") as gateway,
        pod_node(pod_cluster, namespace, "drained", tmp_path) as old_node,
        pod_node(pod_cluster, namespace, "spare", tmp_path) as new_node,
        old_node.running_agent(routes=gateway.routes("drained")) as old,
        new_node.running_agent(routes=gateway.routes("spare")) as new,
    ):
        old.offer(assigned(1, wanted))
        until(lambda: serves(old, "search-1"), "the copy serves")
        with loaded(gateway) as load:
            with pytest.raises(Refused, match="disruption budget"):
                pod_cluster.kubectl(*DRAIN, "--timeout=1s")
            until(lambda: old.drained, "the agent learns that its node is drained")
            drained: list[str] = []
            draining = threading.Thread(target=lambda: drained.append(pod_cluster.kubectl(*DRAIN, "--timeout=120s")))
            draining.start()
            new.offer(assigned(1, served("search-2")))  # as the planner does with a drain: make before break
            until(lambda: serves(new, "search-2"), "another copy serves")
            load.await_answers(30)
            assert draining.is_alive(), "it waits while a copy is there"
            old.offer(assigned(2))
            draining.join()
            assert drained, "kubectl is content"
            load.await_answers(30)
            assert load.stop().failed == ()
        assert old.keeper.copies() == ()
        pod_cluster.kubectl("uncordon", "drained")
        until(lambda: not old.drained, "the agent learns that its node is used again")


def test_a_pod_that_kubectl_deletes_serves_until_its_successor_does(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        running_gateway(tmp_path / "gateway") as gateway,
        pod_node(pod_cluster, namespace, "deleting", tmp_path) as made,
        made.running_agent(routes=gateway.routes()) as node,
    ):
        node.offer(assigned(1, served("search-1")))
        until(lambda: serves(node, "search-1"), "the copy serves")
        first = copy_of(node, "search-1")
        with loaded(gateway) as load:
            pod_cluster.kubectl("-n", namespace, "delete", "pod", "-l", "gpuwright.io/part=copy", "--wait=false")
            until(
                lambda: serves(node, "search-1") and copy_of(node, "search-1").id != first.id,
                lambda: [(copy.id, copy.stage, copy.reason) for copy in node.keeper.copies()],
            )
            load.await_answers(30)
            assert load.stop().failed == ()

        def pods() -> list[str]:
            words = ("get", "pods", "-l", "gpuwright.io/part=copy", "-o", "jsonpath={.items[*].metadata.annotations}")
            return pod_cluster.kubectl("-n", namespace, *words).split("gpuwright.io/copy")[1:]

        until(lambda: len(pods()) == 1, "no other pod is left of it")


def test_an_agent_that_is_started_again_finds_its_pods_which_serve_meanwhile(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        running_gateway(tmp_path / "gateway") as gateway,
        pod_node(pod_cluster, namespace, "adopting", tmp_path) as made,
    ):
        with made.running_agent(routes=gateway.routes()) as node:
            node.offer(assigned(1, served("search-1")))
            until(lambda: serves(node, "search-1"), "the copy serves")
            first = copy_of(node, "search-1")
        with loaded(gateway) as load, made.running_agent(2, gateway.routes()) as node:
            assert (node.strangers, copy_of(node, "search-1").running) == ((), first.running)
            node.offer(assigned(1, served("search-1")))
            load.await_answers(30)
            assert load.stop().failed == ()
            assert serves(node, "search-1")
        (made.machine.folder / "state" / "journal.jsonl").unlink()
        with made.running_agent(3, gateway.routes()) as node:
            assert [stranger.copy for stranger in node.strangers] == [first.id]
            node.offer(assigned(1, served("search-1")))
            node.adopt(end=False)
            until(lambda: serves(node, "search-1"), "the copy is adopted without a record of it")
            assert copy_of(node, "search-1").running == first.running


def test_taints_of_those_who_take_a_machine_away_are_notices_whatever_their_value(
    pod_cluster: RunningCluster, tmp_path: Path
) -> None:
    with (
        budgeted_namespace(pod_cluster) as namespace,
        pod_node(pod_cluster, namespace, "taken", tmp_path) as made,
        made.running_agent() as node,
    ):
        began = int(time.time())
        for value in ("2026-01-01", "9999-12-31", "99999999999999", str(began)):  # only the last is a time near now
            taint = f"ToBeDeletedByClusterAutoscaler={value}:NoSchedule"
            pod_cluster.kubectl("taint", "nodes", "taken", taint, "--overwrite")
            until(lambda: node.reclaim_at, "it is a notice")
            assert node.reclaim_at is not None
            assert abs(node.reclaim_at - datetime.now(UTC)) < timedelta(hours=1)
        goes = datetime.fromtimestamp(began, UTC) + timedelta(minutes=10)
        until(lambda: node.reclaim_at == goes, lambda: node.reclaim_at)
        cloud = "aws-node-termination-handler/spot-itn"  # its value names the notice
        pod_cluster.kubectl("taint", "nodes", "taken", f"{cloud}=spot-itn-0f3a:NoSchedule")
        until(lambda: node.reclaim_at and node.reclaim_at < goes, "two minutes are sooner than ten")
        assert node.reclaim_at is not None
        assert node.reclaim_at - datetime.now(UTC) <= TAKES_AWAY[cloud]
        pod_cluster.kubectl("taint", "nodes", "taken", f"{cloud}-")
        until(lambda: node.reclaim_at == goes, lambda: node.reclaim_at)
        pod_cluster.kubectl("label", "nodes", "taken", "karpenter.sh/capacity-type=spot")
        until(lambda: node.reclaim_at == goes - timedelta(minutes=8), "a cloud may mean it")
        pod_cluster.kubectl("label", "nodes", "taken", "karpenter.sh/capacity-type-")
        until(lambda: node.reclaim_at == goes, lambda: node.reclaim_at)
        pod_cluster.kubectl("taint", "nodes", "taken", "ToBeDeletedByClusterAutoscaler-")
        until(lambda: node.reclaim_at is None, "it is withdrawn")
