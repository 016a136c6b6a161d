"""Pods of Deployments and DaemonSets on nodes of ours, which `kubectl` drains, cordons and rolls out anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.cluster import Refused, Resource
from tests.kubernetes.kubelet import IMAGE, Kubelet
from tests.kubernetes.nodes import UP, Place, RunningCluster, find_processes, make_pod
from tests.support.patience import until

pytestmark = pytest.mark.slow


def make_owner(kind: str, replicas: int | None = None, program: str = UP) -> Resource:
    """Returns a Deployment or DaemonSet named `chat`."""
    pod = make_pod("chat", program)
    template = {"metadata": {"labels": {"app": "chat"}}, "spec": pod["spec"]}
    sized = {} if replicas is None else {"replicas": replicas}
    spec = {"selector": {"matchLabels": {"app": "chat"}}, "template": template, **sized}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "chat"}, "spec": spec}


def list_pods(place: Place) -> list[Resource]:
    found: list[Resource] = place.read("pods", "-l", "app=chat")["items"]
    return found


def drain(place: Place, *words: str) -> str:
    """Drains the node of what the test has put there."""
    return place.kubectl("drain", "node-a", "--pod-selector=app=chat", "--ignore-daemonsets", *words)


@pytest.mark.usefixtures("node")
def test_a_drain_waits_for_the_budget_and_moves_pods_to_another_node(place: Place, pod_cluster: RunningCluster) -> None:
    place.create(make_owner("Deployment", 2))
    place.wait("condition=Available", "deployment/chat")
    place.kubectl("create", "poddisruptionbudget", "chat", "--selector=app=chat", "--max-unavailable=0")
    until(lambda: place.read("pdb", "chat").get("status", {}).get("expectedPods") == 2, "the budget has counted")
    with pytest.raises(Refused, match="would violate the pod's disruption budget"):
        drain(place, "--timeout=1s")
    assert place.read("node", "node-a")["spec"]["unschedulable"]
    before = {pod["metadata"]["uid"] for pod in list_pods(place)}
    assert len(before) == 2
    with pod_cluster.running_node("node-b"):
        place.kubectl("patch", "pdb", "chat", "--type=merge", "-p", '{"spec": {"maxUnavailable": 1}}')
        drain(place, "--timeout=100s")
        place.wait("condition=Available", "deployment/chat")
        after = [pod for pod in list_pods(place) if "deletionTimestamp" not in pod["metadata"]]
        assert {pod["spec"]["nodeName"] for pod in after} == {"node-b"}
        assert before.isdisjoint(pod["metadata"]["uid"] for pod in after)
        place.kubectl("delete", "deployment", "chat", "--cascade=foreground")


def test_a_pod_waits_while_its_node_is_cordoned(place: Place, node: Kubelet) -> None:
    place.kubectl("cordon", node.name)
    place.create(make_pod("chat", UP))
    place.wait("jsonpath={.status.conditions[0].reason}=Unschedulable", "pod/chat")
    place.kubectl("uncordon", node.name)
    place.wait("condition=Ready", "pod/chat")


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("kind", ["Deployment", "DaemonSet"])
def test_a_rollout_replaces_the_pods(place: Place, kind: str) -> None:
    named = f"{kind.lower()}/chat"
    place.create(make_owner(kind))
    place.kubectl("rollout", "status", named, "--timeout=100s")
    before = {pod["metadata"]["uid"] for pod in list_pods(place)}
    place.kubectl("rollout", "restart", named)
    place.kubectl("rollout", "status", named, "--timeout=100s")
    until(lambda: len(list_pods(place)) == 1, "the old pod has ended")
    assert before.isdisjoint(pod["metadata"]["uid"] for pod in list_pods(place))


@pytest.mark.usefixtures("node")
def test_containers_start_after_those_that_prepare_and_are_ready_when_their_probes_say_so(place: Place) -> None:
    program = "cat /tmp/first; echo up; while [ ! -e /tmp/hook ]; do sleep .05; done; touch /tmp/open; sleep 600"
    shared = [{"name": "shared", "mountPath": "/tmp"}]
    first = {"name": "first", "image": IMAGE, "command": ["/bin/sh", "-c", "echo first > /tmp/first"]}
    probed = {kind: ask(f"/tmp/{file}") for kind, file in (("startupProbe", "first"), ("readinessProbe", "open"))}
    pod = make_pod(
        "chat", program, volumes=[{"name": "shared", "emptyDir": {}}],
        initContainers=[{**first, "volumeMounts": shared}], container={"volumeMounts": shared, **probed},
    )  # fmt: skip
    place.create(pod)
    until(lambda: place.read_log("chat") == "first\nup\n", "it prints what the first one has written")
    place.wait("jsonpath={.status.containerStatuses[0].started}=true", "pod/chat")
    assert not place.read_container("chat")["ready"]
    folder = Path(f"/proc/{min(find_processes(place.read_container('chat')['containerID']))}/root", "tmp")
    (folder / "hook").touch()
    place.wait("condition=Ready", "pod/chat")


@pytest.mark.usefixtures("node")
def test_the_end_of_a_container_begins_with_its_hook(place: Place, tmp_path: Path) -> None:
    volumes = [{"name": "seen", "hostPath": {"path": str(tmp_path)}}]
    mounts = [{"name": "seen", "mountPath": "/tmp"}]
    hook = {"preStop": {"exec": {"command": ["/bin/sh", "-c", "echo hook > /tmp/seen"]}}}
    program = "trap 'echo term >> /tmp/seen; exit 0' TERM; echo up; while :; do sleep .05; done"
    place.create(make_pod("chat", program, volumes=volumes, container={"volumeMounts": mounts, "lifecycle": hook}))
    place.wait("condition=Ready", "pod/chat")
    until(lambda: "up" in place.read_log("chat"), "it has set its trap")
    place.kubectl("delete", "pod", "chat")
    assert (tmp_path / "seen").read_text() == "hook\nterm\n"


def ask(path: str) -> Resource:
    """Returns a probe that asks for a file."""
    return {"exec": {"command": ["/usr/bin/test", "-e", path]}, "periodSeconds": 1}
