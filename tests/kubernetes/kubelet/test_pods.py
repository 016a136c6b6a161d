"""Pods run on a node of ours as `kubectl` and Kubernetes' own controllers expect it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.kubernetes.kubelet import Kubelet
from tests.kubernetes.nodes import STUBBORN, UP, Place, find_processes, make_pod
from tests.support.patience import until

pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("node")
def test_a_pod_is_scheduled_runs_shows_its_log_and_ends_when_it_is_asked(place: Place) -> None:
    place.create(make_pod("a", f"echo in $POD at $ADDRESS; {UP}", container={"env": [
        {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]}))  # fmt: skip
    place.wait("condition=Ready", "pod/a")
    status = place.read("pod", "a")["status"]
    assert status["podIP"].startswith("127.")
    until(lambda: "up" in place.read_log("a"), "it prints")
    assert place.kubectl("logs", "a", "--limit-bytes=2000") == f"in a at {status['podIP']}\nup\n"
    assert place.kubectl("logs", "a", "--tail=1") == "up\n"
    processes = find_processes(status["containerStatuses"][0]["containerID"])
    assert processes
    place.kubectl("delete", "pod", "a")
    assert not [pid for pid in processes if Path(f"/proc/{pid}").exists()]


@pytest.mark.usefixtures("node")
def test_a_pod_that_ignores_the_request_is_killed_when_its_time_is_over_or_it_is_deleted_by_force(place: Place) -> None:
    place.create(*(make_pod(name, STUBBORN, terminationGracePeriodSeconds=600) for name in "ab"))
    place.wait("condition=Ready", "pod/a", "pod/b")
    containers = {name: place.read_container(name)["containerID"] for name in "ab"}
    place.kubectl("delete", "pod", "a", "--wait=false")
    assert find_processes(containers["a"])
    place.kubectl("delete", "pod", "a", "--grace-period=1")
    assert not find_processes(containers["a"])
    place.kubectl("delete", "pod", "b", "--force", "--grace-period=0")
    until(lambda: not find_processes(containers["b"]), "the process of a pod that is gone ends")


@pytest.mark.usefixtures("node")
def test_a_container_that_ends_is_started_again_and_then_held_back(place: Place) -> None:
    place.create(make_pod("a", "echo run; exit 3"), make_pod("b", "", container={"command": ["/no-such-program"]}))

    def waits(name: str) -> bool:
        return bool(place.read_container(name)["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")

    until(lambda: waits("a") and waits("b"), "both are held back")
    found = place.read_container("a")
    assert found["restartCount"] >= 1
    assert (found["lastState"]["terminated"]["exitCode"], found["lastState"]["terminated"]["reason"]) == (3, "Error")
    assert place.kubectl("logs", "a", "--previous") == "run\n"
    assert "/no-such-program" in place.read_container("b")["lastState"]["terminated"]["message"]


def test_an_image_that_the_node_lacks_is_named_and_used_once_it_is_there(place: Place, node: Kubelet) -> None:
    place.create(make_pod("a", UP, container={"image": "other:1"}))
    place.wait("jsonpath={.status.containerStatuses[0].state.waiting.reason}=ErrImagePull", "pod/a")
    node.images.add("other:1")
    place.wait("condition=Ready", "pod/a")


@pytest.mark.usefixtures("node")
def test_a_pod_is_ready_once_its_gates_are_opened_from_outside_and_as_long_as_they_are(place: Place) -> None:
    gate = "gpuwright.io/limits-verified"
    place.create(make_pod("a", UP, readinessGates=[{"conditionType": gate}]))
    place.wait("condition=ContainersReady", "pod/a")
    place.wait("condition=Ready=False", "pod/a")

    def write(holds: str) -> None:
        patch = f'{{"status": {{"conditions": [{{"type": "{gate}", "status": "{holds}"}}]}}}}'
        place.kubectl("patch", "pod", "a", "--subresource=status", "-p", patch)

    write("True")
    place.wait("condition=Ready", "pod/a")
    write("False")
    place.wait("condition=Ready=False", "pod/a")
    assert {one["type"] for one in place.read("pod", "a")["status"]["conditions"]} >= {gate, "PodScheduled"}


def test_a_kubelet_that_starts_again_finds_its_containers_and_sees_what_ended_meanwhile(
    place: Place, node: Kubelet
) -> None:
    place.create(make_pod("a", UP), make_pod("b", UP), make_pod("c", UP))
    place.wait("condition=Ready", "pod/a", "pod/b", "pod/c")
    before = {name: place.read_container(name)["containerID"] for name in "abc"}
    node.stop()
    place.kubectl("delete", "pod", "c", "--force", "--grace-period=0")
    os.kill(min(find_processes(before["b"])), signal.SIGKILL)
    node.start()
    place.wait("jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/b")
    assert place.read_container("a")["containerID"] == before["a"]
    assert place.read_container("b")["lastState"]["terminated"]["exitCode"] == 128 + signal.SIGKILL
    until(lambda: not find_processes(before["c"]), "what is gone from the server ends")


@pytest.mark.usefixtures("node")
def test_a_pod_may_share_its_processes_be_another_user_and_see_folders_of_its_node(
    place: Place, tmp_path: Path
) -> None:
    """Without a first process of its own that ignores it, a program without a handler ends by SIGTERM."""
    tmp_path.chmod(0o755)
    (tmp_path / "file").write_text("of the node\n")
    mounts = [{"name": "own", "mountPath": "/tmp/gpuwright-mounted", "readOnly": True}]
    rights = {"capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True}
    program = "id -u; cat file; touch new || echo read-only; grep CapBnd /proc/self/status; sleep 600 & exec sleep 600"
    place.create(
        make_pod(
            "a", program, shareProcessNamespace=True, terminationGracePeriodSeconds=600,
            volumes=[{"name": "own", "hostPath": {"path": str(tmp_path)}}],
            securityContext={"runAsUser": 1234, "runAsGroup": 1235},
            container={"workingDir": "/tmp/gpuwright-mounted", "volumeMounts": mounts, "securityContext": rights},
        )
    )  # fmt: skip
    until(lambda: "CapBnd" in place.read_log("a"), "it prints")
    said = place.kubectl("logs", "a").splitlines()
    assert (said[:2], said[-2], said[-1].split()[1]) == (["1234", "of the node"], "read-only", "0" * 16)
    assert not (tmp_path / "new").exists()
    container = place.read_container("a")["containerID"]
    until(lambda: len(find_processes(container)) == 2, "the program and what it has started")
    place.kubectl("delete", "pod", "a")
    assert not find_processes(container)
