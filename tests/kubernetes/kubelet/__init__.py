"""A kubelet for tests: pods that are bound to its node run as real processes of this machine.

Their images are names without files: commands run with this machine's files and network. Each pod has an address of
its own on the loopback, each container its own cgroup and PID namespace. It prepares no ResourceClaims.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread

import httpx2

from tests.kubernetes.kubelet.api import MERGE, Api, Away, Expired, Resource
from tests.kubernetes.kubelet.containers import BackOff, stamp
from tests.kubernetes.kubelet.devices import RESOURCE, Devices
from tests.kubernetes.kubelet.groups import make_root, remove
from tests.kubernetes.kubelet.logs import LogServer
from tests.kubernetes.kubelet.pods import HOST, Node, Pod
from tests.kubernetes.server import ApiServer

IMAGE = "gpuwright-test"
AGAIN_SECONDS = 0.2
# Ends all processes of a kubelet with the process that runs the tests, however that ends.
GUARD = 'read -r _; echo 1 2> /dev/null > "$1/cgroup.kill"'


class Kubelet:
    """Of one node. `stop` and `start` are those of its program; `close` ends all that it has started."""

    def __init__(
        self,
        server: ApiServer,
        name: str,
        folder: Path,
        gpus: Sequence[str] = (),
        labels: Mapping[str, str] | None = None,
        taints: Iterable[Resource] = (),
        images: Iterable[str] = (IMAGE,),
        back_off: BackOff | None = None,
        kubeconfig: Path | None = None,
        runtime_classes: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """`runtime_classes` have what each adds to the environment of its containers."""
        self.name = name
        self._runtime_classes = runtime_classes or {}
        self.images = set(images)
        self.devices, self._labels, self._taints = Devices(gpus, folder), dict(labels or {}), list(taints)
        self._files, self._kubeconfig = server.files, kubeconfig or server.admin
        self._folder, self._back_off = folder, back_off or BackOff()
        self.groups = make_root(f"gpuwright-kubelet-{os.getpid()}-{name}")
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", GUARD, "guard", str(self.groups)], stdin=subprocess.PIPE, start_new_session=True
        )
        self._pods: dict[str, Pod] = {}  # by their UID
        self._lock = Lock()
        self._stopping = Event()
        self._thread: Thread | None = None

    def start(self) -> None:
        """Registers the node and begins to look after its pods, also those that it ran before."""
        self._stopping.clear()
        self._api = Api(self._kubeconfig)
        self._node = Node(
            self._api, self._folder, self.groups, self.images, self._back_off, self.devices, self._runtime_classes
        )
        self._logs = LogServer(self._files, self._find_log)
        self._logs.start()
        self._register()
        self._thread = Thread(target=self._follow, name=f"kubelet {self.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leaves the containers running, as a kubelet does that ends."""
        if self._thread is None:
            return
        self._stopping.set()
        while self._thread.is_alive():
            self._api.end_watch()
            self._thread.join(0.05)
        self._thread = None
        for pod in self._pods.values():
            pod.stop()
        for pod in self._pods.values():
            pod.join()
        self._pods.clear()
        self._logs.close()
        self._api.close()

    def close(self) -> None:
        """Stops and ends all processes of its containers, whatever state they are in."""
        self.stop()
        remove(self.groups)
        assert self._guard.stdin
        self._guard.stdin.close()
        self._guard.wait()

    def _register(self) -> None:
        metadata = {"name": self.name, "labels": {"kubernetes.io/hostname": self.name, **self._labels}}
        self._api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        path = f"/api/v1/nodes/{self.name}"
        # The server taints a new node until it is ready.
        self._api.patch(path, {"metadata": metadata, "spec": {"taints": self._taints}}, MERGE)
        sizes = {"cpu": "16", "memory": "64Gi", "pods": "110", "ephemeral-storage": "64Gi"}
        if self.devices.uuids:
            sizes[RESOURCE] = str(len(self.devices.uuids))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": stamp(time.time())}
        status = {
            "capacity": sizes,
            "allocatable": sizes,
            "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": HOST}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._logs.port}},
        }
        self._api.patch(f"{path}/status", {"status": status})

    def _follow(self) -> None:
        """Follows what is bound to the node, until it is stopped."""
        mine = {"fieldSelector": f"spec.nodeName={self.name}"}
        while not self._stopping.is_set():
            with suppress(Away, Expired, httpx2.HTTPStatusError, httpx2.StreamError):
                version = self._list(mine)
                for kind, found in self._api.watch("/api/v1/pods", version, **mine):
                    self._update(found, gone=kind == "DELETED")
            self._stopping.wait(AGAIN_SECONDS)

    def _list(self, mine: Mapping[str, str]) -> str:
        found = self._api.get("/api/v1/pods", **mine)
        assert found
        there = {pod["metadata"]["uid"] for pod in found["items"]}
        for pod in found["items"]:
            self._update(pod)
        for pod in self._pods.values():
            if pod.uid not in there:
                pod.update(pod.found, gone=True)
        self._forget_unknown(there)
        return str(found["metadata"]["resourceVersion"])

    def _forget_unknown(self, there: set[str]) -> None:
        """Ends what ran before it was started, and is gone from the server since."""
        for group in self.groups.glob("kubepods/pod*"):
            uid = group.name.removeprefix("pod")
            if uid not in there and uid not in self._pods:
                remove(group)

    def _update(self, found: Resource, gone: bool = False) -> None:
        uid = found["metadata"]["uid"]
        with self._lock:
            if uid in self._pods:
                self._pods[uid].update(found, gone)
            elif not gone:
                self._pods[uid] = Pod(self._node, found)
                self._pods[uid].start()
            self._pods = {key: pod for key, pod in self._pods.items() if not (pod.gone and pod.done)}

    def _find_log(self, namespace: str, name: str, container: str, ago: int) -> Path | None:
        with self._lock:
            named = [pod for pod in self._pods.values() if (pod.namespace, pod.name) == (namespace, name)]
        found = named[-1].find_container(container) if named else None
        return found.runs[-1 - ago].log if found and len(found.runs) > ago else None
