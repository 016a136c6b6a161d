"""Copies as pods of a real cluster: its API server, controllers and scheduler, and a node with a kubelet of ours."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.kubernetes.api import KubernetesApi
from agents.runtime import CopyRuntime, LaunchError, Running
from agents.runtime.pods import PodRuntime
from agents.runtime.replica_set import PodSettings
from tests.agents.runtime.conformance import SLEEPER, RuntimeConformance, launched
from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.nodes import RunningCluster, running_cluster
from tests.support.patience import until

pytestmark = pytest.mark.slow

NODE = "gpu-1"
SETTINGS = PodSettings(NODE, user=0, group=0)
OPENED: list[PodRuntime] = []  # each follows its pods until it is closed


def open_runtime(api: KubernetesApi) -> PodRuntime:
    OPENED.append(PodRuntime(api, SETTINGS))
    return OPENED[-1]


@pytest.fixture(scope="module")
def pod_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as cluster, cluster.running_node(NODE):
        yield cluster


@pytest.fixture(scope="module")
def api(pod_cluster: RunningCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubernetesApi]:
    yield open_api(pod_cluster, pod_cluster.make_namespace("copies"), tmp_path_factory.mktemp("account") / "agent")
    for runtime in OPENED:
        runtime.close()


@pytest.fixture
def runtime(pod_cluster: RunningCluster, api: KubernetesApi) -> Iterator[PodRuntime]:
    runtime = open_runtime(api)
    yield runtime
    for running in runtime.find():
        runtime.end(running, force=True)

    for found in pod_cluster.read("-n", api.namespace, "get", "replicasets")["items"]:
        withdraw(runtime, found["metadata"]["annotations"]["gpuwright.io/copy"])

    def nothing_is_left() -> bool:
        runtime.tidy(())
        return not pod_cluster.read("-n", api.namespace, "get", "replicasets,pods")["items"]

    until(nothing_is_left, "everything is ended")


class TestConformance(RuntimeConformance):
    image = IMAGE

    @pytest.fixture
    def runtime(self, api: KubernetesApi, runtime: PodRuntime) -> CopyRuntime:
        self.api = api
        return runtime

    def reopened(self, tmp_path: Path) -> CopyRuntime:
        return open_runtime(self.api)

    def test_unneeded_logs_of_copies_are_deleted(self, runtime: CopyRuntime) -> None:
        """The log of a copy that the agent ends goes with its pod."""
        running = self.up(runtime, "a-1", SLEEPER)
        runtime.tidy({"a-1"})
        assert "up" in runtime.log_tail("a-1")
        runtime.end(running, force=True)
        until(lambda: runtime.log_tail("a-1") == "", "its pod is gone")

    def test_a_job_goes_before_a_service_when_the_host_runs_out_of_memory(self, runtime: CopyRuntime) -> None:
        """The kubelet ranks pods by their class, which is the same for both: nobody knows the memory they need."""
        service = self.start(runtime, "s-1", SLEEPER)
        job = self.begin(runtime, replace(launched("j-1", SLEEPER, image=self.image), port=0))
        scores = [int(Path(f"/proc/{running.pid}/oom_score_adj").read_text()) for running in (service, job)]
        assert scores == [1000, 1000]


def withdraw(runtime: PodRuntime, copy: str, running: Running | None = None) -> None:
    """Withdraws a copy as often as it takes until nothing else of it runs."""

    def is_over() -> bool:
        try:
            runtime.withdraw(copy, running)
        except LaunchError:
            return False
        return True

    until(is_over, f"nothing runs in place of {copy}")


def start_up(runtime: PodRuntime, copy: str, program: str, **changes: Any) -> Running:
    """Starts a copy and waits until it prints that it is up."""
    launch = launched(copy, program, image=IMAGE, **changes)
    until(lambda: runtime.start(launch) is not None, f"{copy} runs")
    until(lambda: "up" in runtime.log_tail(copy), f"{copy} prints")
    running = runtime.start(launch)
    assert running
    return running


def test_what_the_kubelet_starts_after_a_copy_has_ended_by_itself_is_ended_at_once(runtime: PodRuntime) -> None:
    running = start_up(runtime, "a-1", SLEEPER)
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: [found.container for found in runtime.find()] not in ([], [running.container]), "it runs again")
    (second,) = runtime.find()
    withdraw(runtime, "a-1")
    assert not runtime.alive(second), "its hook would take a minute"
    assert runtime.exit_code(running) in (137, None)
    until(lambda: runtime.log_tail("a-1") == "", "its pod is gone, and no other comes")


def test_a_copy_whose_pod_somebody_deletes_goes_on_until_it_is_ended_and_its_successor_does_not(
    pod_cluster: RunningCluster, api: KubernetesApi, runtime: PodRuntime
) -> None:
    running = start_up(runtime, "a-1", SLEEPER)
    pod_cluster.kubectl("-n", api.namespace, "delete", "pods", "--all", "--wait=false")
    until(lambda: runtime.find_called_away().keys() == {"a-1"}, "it is seen")

    def list_containers() -> list[str]:
        found = pod_cluster.read("-n", api.namespace, "get", "pods")["items"]
        states = [pod["status"].get("containerStatuses", [{}])[0] for pod in found]
        return [state.get("containerID", "")[-64:] for state in states if "running" in state.get("state", {})]

    until(lambda: len(list_containers()) == 2, "its ReplicaSet has started another one")
    withdraw(runtime, "a-1", running)
    until(lambda: list_containers() == [running.container], "the other is gone; its hook would take a minute")
    assert runtime.alive(running)
    runtime.end(running, force=False)
    until(lambda: not runtime.alive(running), "SIGTERM ends it")
    until(lambda: not list_containers(), "no other pod comes")


def test_nothing_that_runs_is_tidied_away_but_what_came_in_no_agents_knowledge(
    pod_cluster: RunningCluster, api: KubernetesApi, runtime: PodRuntime
) -> None:
    def count_wanted(copy: str) -> int:
        found = pod_cluster.read("-n", api.namespace, "get", "replicasets")["items"]
        sizes = {one["metadata"]["annotations"]["gpuwright.io/copy"]: one["spec"]["replicas"] for one in found}
        return int(sizes[copy])

    start_up(runtime, "measured-1", SLEEPER)
    again = open_runtime(api)
    assert [running.copy for running in again.find()] == ["measured-1"]
    for tidied in (runtime, runtime, again, again):
        tidied.tidy(())
        assert count_wanted("measured-1") == 1, "it is measured here, and runs in no journal there"
    start_up(runtime, "late-1", SLEEPER)  # as by a request of an agent's that was not answered
    again.tidy(())
    assert (count_wanted("measured-1"), count_wanted("late-1")) == (1, 0)


def test_an_orphan_of_a_copy_is_one_of_its_processes(runtime: PodRuntime) -> None:
    running = start_up(runtime, "a-1", "(sleep 600 & echo up); exec sleep 500")
    until(lambda: len(runtime.pids(running)) == 2, "its parent is gone")


def test_a_copy_stays_on_a_node_that_the_api_server_does_not_hear_of(
    pod_cluster: RunningCluster, api: KubernetesApi, runtime: PodRuntime
) -> None:
    """By default the server gives such a pod five minutes."""
    start_up(runtime, "a-1", SLEEPER)
    (pod,) = pod_cluster.read("-n", api.namespace, "get", "pods")["items"]
    tolerated = [one for one in pod["spec"]["tolerations"] if one.get("effect") == "NoExecute"]
    assert {one["key"]: one.get("tolerationSeconds") for one in tolerated} == {
        "node.kubernetes.io/not-ready": None,
        "node.kubernetes.io/unreachable": None,
    }


def test_a_copy_that_the_kubelet_has_evicted_is_over_and_says_why(
    pod_cluster: RunningCluster, api: KubernetesApi, runtime: PodRuntime
) -> None:
    running = start_up(runtime, "a-1", SLEEPER)
    (pod,) = pod_cluster.read("-n", api.namespace, "get", "pods")["items"]
    evicted = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."}
    words = ("patch", "pod", pod["metadata"]["name"], "--subresource=status", "--type=merge", "-p")
    pod_cluster.kubectl("-n", api.namespace, *words, json.dumps({"status": {**evicted, "containerStatuses": []}}))
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: "Evicted: The node was low on resource: memory." in runtime.log_tail("a-1"), "it says so")
    withdraw(runtime, "a-1")  # though its pod stays, which its ReplicaSet does not count any more


def test_a_copy_that_gets_no_pod_says_why(pod_cluster: RunningCluster, api: KubernetesApi, runtime: PodRuntime) -> None:
    space = ("-n", api.namespace)
    pod_cluster.kubectl(*space, "create", "quota", "none", "--hard=pods=0")
    quota = ("get", "quota", "none")
    until(lambda: "pods" in pod_cluster.read(*space, *quota).get("status", {}).get("used", {}), "it is in force")
    try:
        assert runtime.start(launched("a-1", SLEEPER, image=IMAGE)) is None
        until(lambda: "exceeded quota: none" in runtime.log_tail("a-1"), "its ReplicaSet says it")
    finally:
        pod_cluster.kubectl(*space, "delete", "quota", "none")
