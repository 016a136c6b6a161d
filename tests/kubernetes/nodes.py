"""A cluster in which pods run: an API server with controllers and a scheduler, and kubelets as a test wants them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster, Refused, Resource
from tests.kubernetes.kubelet import IMAGE, Kubelet
from tests.kubernetes.server import ApiServer, running_api_server

UP = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep .05; done"
STUBBORN = "trap '' TERM; echo up; sleep 600"


class RunningCluster(Cluster):
    """Its nodes are made by tests."""

    def __init__(self, server: ApiServer, folder: Path) -> None:
        super().__init__(server.admin, folder)
        self.server = server
        self._nodes = folder

    @contextmanager
    def running_node(self, name: str, **changes: Any) -> Iterator[Kubelet]:
        """Has a node with a kubelet; both are gone in the end, with all that runs there."""
        kubelet = Kubelet(self.server, name, self._nodes / name, **changes)
        try:
            kubelet.start()
            yield kubelet
        finally:
            kubelet.close()
            self.kubectl("delete", "node", name, "--ignore-not-found", "--wait=false")


class Place:
    """A namespace with what a test asks of it."""

    def __init__(self, cluster: RunningCluster, namespace: str) -> None:
        self.cluster, self.namespace = cluster, namespace

    def kubectl(self, *words: str, given: object = None) -> str:
        return self.cluster.kubectl("-n", self.namespace, *words, given=given)

    def create(self, *objects: Resource) -> None:
        self.kubectl("create", "-f", "-", given={"apiVersion": "v1", "kind": "List", "items": [*objects]})

    def wait(self, condition: str, *words: str) -> None:
        self.kubectl("wait", f"--for={condition}", "--timeout=100s", *words)

    def read(self, *words: str) -> Resource:
        found: Resource = self.cluster.read("-n", self.namespace, "get", *words)
        return found

    def read_log(self, name: str) -> str:
        """Returns what a pod has printed; nothing where its container has not begun, of which kubectl reads none."""
        with suppress(Refused):
            return self.kubectl("logs", name)
        return ""

    def read_container(self, name: str) -> Resource:
        """Returns the status of a pod's first container; one without a state where the kubelet has said nothing yet."""
        found: list[Resource] = self.read("pod", name)["status"].get("containerStatuses", ())
        return found[0] if found else {"state": {}}


@contextmanager
def running_cluster(folder: Path) -> Iterator[RunningCluster]:
    with running_api_server(folder) as server:
        server.start_controllers()
        server.start_scheduler()
        yield RunningCluster(server, folder)


def make_pod(name: str, program: str, node: str = "", **spec: Any) -> Resource:
    """Returns a pod that runs a line of shell."""
    container = {"name": "copy", "image": IMAGE, "command": ["/bin/sh", "-c", program], **spec.pop("container", {})}
    placed = {"nodeName": node} if node else {}
    metadata = {"name": name, "labels": {"app": name}}
    given = {"containers": [container], "terminationGracePeriodSeconds": 5, **placed, **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": given}


def find_processes(container: str) -> list[int]:
    """Returns those whose cgroup has the container's ID in its path, as an agent finds them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cgroup"):
        try:
            if container.removeprefix("containerd://") in path.read_text():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
