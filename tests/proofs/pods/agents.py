"""The agent's program on a node of a cluster: its copies are pods, run by a kubelet of its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from tests.kubernetes.accounts import open_api
from tests.kubernetes.kubelet import IMAGE, Kubelet
from tests.kubernetes.nodes import RunningCluster
from tests.proofs.demo_fleet import GPUS, NodeMaker
from tests.support.agents import AgentProcess
from tests.support.server import RunningServer


class PodAgent(AgentProcess):
    """Its node of the cluster is there as long as it is; the kubelet may be stopped and started."""

    def __init__(
        self, cluster: RunningCluster, namespace: str, server: RunningServer, folder: Path, node: str,
        gpus: int = 1, **kinds: str,
    ) -> None:  # fmt: skip
        self.cluster, self.namespace = cluster, namespace
        devices = [f"GPU-{node}-{number}" for number in range(gpus)]
        self.kubelet = Kubelet(cluster.server, node, folder.parent / f"kubelet-{node}", devices)
        self.kubelet.start()
        self._account = folder.parent / f"account-{node}"
        open_api(cluster, namespace, self._account)
        super().__init__(server, folder, gpus, node, **kinds)
        address = urlsplit(cluster.server.url)
        self.environment |= {
            "KUBERNETES_SERVICE_HOST": str(address.hostname),
            "KUBERNETES_SERVICE_PORT": str(address.port),
        }

    def start(self, *words: str) -> None:
        account = ("--service-account", str(self._account))
        super().start("--runtime", "pods", "--image", IMAGE, *account, *words)

    def copies(self) -> list[str]:
        """Returns each copy that runs, as often as it does."""
        return sorted(copy for copy in self.read_copies().values() if copy)

    def read_copies(self) -> dict[str, str]:
        """Returns the containers on this node that run, and the copy that each says it is; holders say none."""
        return {container: found.get("GPUWRIGHT_COPY", "") for container, found in self._read_containers().items()}

    def read_shares(self) -> dict[str, float]:
        """Returns the share of the GPU that each container of a copy may use."""
        share = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
        containers = self._read_containers().items()
        return {container: float(found[share]) for container, found in containers if share in found}

    def _read_containers(self) -> dict[str, dict[str, str]]:
        """Returns the variables of each container by the processes of this machine, whoever knows of them."""
        found: dict[str, dict[str, str]] = {}
        root = self.kubelet.groups / "kubepods"
        # Not by a look at all processes of this machine: that takes ten times as long, and is done all the time.
        for folder, _, _ in os.walk(root):
            container = str(Path(folder).relative_to(root))
            with suppress(OSError):
                for pid in (Path(folder) / "cgroup.procs").read_text().split():
                    with suppress(OSError):
                        variables = Path(f"/proc/{pid}/environ").read_text(errors="replace").split("\0")
                        pairs = (one.partition("=") for one in variables)
                        found.setdefault(container, {}).update({name: value for name, _, value in pairs})
        return found

    def close(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.cluster.kubectl("delete", "node", self.node, "--ignore-not-found", "--wait=false")
        self.kubelet.close()
        self.end_driver()


def list_pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]


def make_pod_agents(cluster: RunningCluster, namespace: str) -> Callable[[RunningServer, Path, str], PodAgent]:
    """Returns what makes the nodes of a town, each with one GPU."""
    return lambda server, folder, node: PodAgent(cluster, namespace, server, folder, node)


def make_pod_node(cluster: RunningCluster, namespace: str) -> NodeMaker:
    """Returns what makes the nodes of a demo fleet."""
    return lambda server, folder, node, kinds: PodAgent(cluster, namespace, server, folder, node, GPUS, **kinds)
