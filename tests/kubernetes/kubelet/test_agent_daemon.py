"""The chart's DaemonSet runs on a node of ours: its agent joins by Kubernetes, and stays who it is when replaced."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Resource
from tests.kubernetes.installed import Installed
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.nodes import RunningCluster
from tests.support.forked import ROOT
from tests.support.patience import until
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type

pytestmark = pytest.mark.slow

HERE = "/run/gpuwright-tests"  # containers see folders of this machine there
LABELS = {"gpuwright-tests": "agents"}
VALUES: Resource = {
    "migrate": {"enabled": False},
    "agent": {
        "enabled": True,
        "pools": [{"name": "tests", "gpuType": "v100-16gb", "gpus": 2, "nodeSelector": LABELS}],
        "runtimeClass": "",
        "priorityClass": "",
        "options": ["--device=simulated", "--simulated-gpus=2"],
    },
}


class Daemon:
    """The chart's DaemonSet as it can run here: our code in place of its image, our server, and other folders."""

    def __init__(self, cluster: RunningCluster, folder: Path, namespace: str) -> None:
        self.cluster, self.folder = cluster, folder
        self.installed = Installed(cluster, folder, namespace)
        self.name = f"daemonset/{namespace}-agent-tests"
        self.installed.run("install", VALUES)

    def kubectl(self, *words: str, given: object = None) -> str:
        return self.cluster.kubectl("-n", self.installed.nodes, *words, given=given)

    def start(self, server: RunningServer) -> None:
        """Gives it what the cluster lacks without a kubelet's images, names and publishers."""
        authority = f"--from-file=ca.crt={self.cluster.server.files.certificate}"
        for trusted in ("gpuwright-ca", "kube-root-ca.crt"):
            self.kubectl("create", "configmap", trusted, authority)
        asked = f"https://{self.installed.name}-api.{self.installed.namespace}.svc:443"
        found = self.kubectl("get", self.name, "-o", "json").replace(asked, server.url)
        found = found.replace("64820", str(os.getuid()))  # who else may read the code that is tested?
        for place in ("/var/lib/", "/run/gpuwright-privileged", "/trust"):
            found = found.replace(f'"{place}', f'"{HERE}{place}').replace(f"={place}", f"={HERE}{place}")
            found = found.replace(f" {place}", f" {HERE}{place}")
        self.kubectl("replace", "-f", "-", given=self._change(json.loads(found)))

    def _change(self, daemon: Resource) -> Resource:
        pod = daemon["spec"]["template"]["spec"]
        pod["securityContext"]["runAsNonRoot"] = False
        pod["initContainers"] = [one for one in pod["initContainers"] if one["name"] != "helper"]  # no driver is here
        for container in (*pod["initContainers"], *pod["containers"]):
            container["image"] = IMAGE
            if "command" not in container:
                container["command"] = [sys.executable, "-m", "cli.main"]
                container["workingDir"] = str(ROOT)
                container["env"] = [*container.get("env", ()), {"name": "HOME", "value": "/tmp"}]
            container["args"] = [word for word in container["args"] if not word.startswith("--helper=")]
        for volume in pod["volumes"]:
            if "hostPath" in volume and volume["name"] != "shared-memory":
                volume["hostPath"]["path"] = str(self.folder / volume["name"])
        return daemon

    def read_log(self) -> str:
        return self.kubectl("logs", self.name, "--all-containers", "--tail=50")

    def remove(self) -> None:
        self.kubectl("delete", self.name, "--wait=true")
        self.installed.remove()


@pytest.fixture
def daemon(pod_cluster: RunningCluster, tmp_path: Path) -> Iterator[Daemon]:
    namespace = pod_cluster.make_namespace("plane")
    made = Daemon(pod_cluster, tmp_path, namespace)
    yield made
    made.remove()
    pod_cluster.remove_namespace(namespace)


@pytest.mark.needs_root("to mount folders")
def test_a_node_of_the_pool_joins_and_a_rollout_of_its_agent_keeps_its_credential(
    daemon: Daemon, pod_cluster: RunningCluster, database_url: str
) -> None:
    account = daemon.installed.user("api")
    given = {
        "KUBECONFIG": str(account.kubeconfig),
        "GPUWRIGHT_KUBERNETES_AGENTS": f"{daemon.installed.nodes}/{daemon.installed.name}-runner",
    }
    with running_server(database_url, **given) as server, pod_cluster.running_node("node-a.example", labels=LABELS):
        assert server.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
        daemon.start(server)

        def joins() -> list[str]:
            entries = server.request("GET", "/api/v1/audit?limit=200").json["items"]
            return [entry["principal"] for entry in entries if entry["verb"] == "join"]

        def reports() -> bool:
            return "reports to" in daemon.read_log()

        daemon.kubectl("rollout", "status", daemon.name, "--timeout=100s")
        until(reports, daemon.read_log)
        spec = server.request("GET", "/api/v1/nodes/node-a-example").json["spec"]
        assert (spec["gpuType"], spec["gpus"]) == ("v100-16gb", 2)
        [first] = joins()
        assert first.startswith(f"kubernetes:{account.name.rpartition(':')[0].rpartition(':')[0]}:"), first
        state = (daemon.folder / "state").stat()
        assert (state.st_uid, stat.S_IMODE(state.st_mode)) == (os.getuid(), 0o700)
        daemon.kubectl("rollout", "restart", daemon.name)
        daemon.kubectl("rollout", "status", daemon.name, "--timeout=100s")
        until(reports, daemon.read_log)
        assert joins() == [first]
