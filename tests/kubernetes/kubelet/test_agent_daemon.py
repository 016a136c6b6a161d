"""The chart's agent runs on a node of ours, with the chart's rights: it joins by Kubernetes and holds GPUs."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.cluster import Resource
from tests.kubernetes.installed import Installed
from tests.kubernetes.kubelet import IMAGE
from tests.kubernetes.nodes import RunningCluster
from tests.kubernetes.on_nodes import examined
from tests.support.forked import ROOT
from tests.support.patience import until
from tests.support.server import RunningServer, running_server
from tests.support.world import gpu_type

pytestmark = pytest.mark.slow

HERE = "/run/gpuwright-tests"  # containers see folders of this machine there
PYTHON = Path(sys.executable).resolve()
SITES = "import os, site; print(next(path for path in site.getsitepackages() if os.path.isdir(path)))"
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
        found = found.replace("registry.example.org/gpuwright-agent:0.1.0", IMAGE)
        for place in ("/var/lib/", "/run/gpuwright-privileged", "/trust"):
            found = found.replace(f'"{place}', f'"{HERE}{place}').replace(f"={place}", f"={HERE}{place}")
            found = found.replace(f" {place}", f" {HERE}{place}")
        self.kubectl("replace", "-f", "-", given=self._change(json.loads(found)))

    def _change(self, daemon: Resource) -> Resource:
        pod = daemon["spec"]["template"]["spec"]
        image = self._make_image()
        pod["initContainers"] = [one for one in pod["initContainers"] if one["name"] != "helper"]  # no driver is here
        for container in (*pod["initContainers"], *pod["containers"]):
            if "command" not in container:
                container["command"] = ["/usr/bin/env", f"{HERE}/python/bin/{PYTHON.name}", "-m", "cli.main"]
                container["env"] = [
                    *container.get("env", ()),
                    {"name": "LD_LIBRARY_PATH", "value": f"{HERE}/python/lib"},
                ]
                container["volumeMounts"] += [{"name": f"image-{n}", "mountPath": path} for n, path in enumerate(image)]
            container["args"] = [word for word in container["args"] if not word.startswith("--helper=")]
        for volume in pod["volumes"]:
            if "hostPath" in volume and volume["name"] != "shared-memory":
                volume["hostPath"]["path"] = str(self.folder / volume["name"])
        pod["volumes"] += [{"name": f"image-{n}", "hostPath": {"path": image[path]}} for n, path in enumerate(image)]
        return daemon

    def _make_image(self) -> dict[str, str]:
        """Returns what an image would have, by its place there: the agent's user may not read it where it is here."""
        base, places = PYTHON.parents[1], self.folder / "places"
        site = subprocess.run([PYTHON, "-I", "-c", SITES], capture_output=True, text=True, check=True).stdout.strip()
        places.mkdir(exist_ok=True)
        (places / "gpuwright.pth").write_text(f"{HERE}/code\n{HERE}/packages\n")
        return {
            f"{HERE}/code": str(ROOT),
            f"{HERE}/packages": sysconfig.get_path("purelib"),
            f"{HERE}/python": str(base),
            f"{HERE}/python/{Path(site).relative_to(base)}": str(places),
        }

    def read_log(self) -> str:
        return self.kubectl("logs", self.name, "--all-containers", "--tail=50")

    def count_holders(self) -> int:
        """Returns the pods that run and hold a GPU, which the agent has made under the chart's policies."""
        words = ("get", "pods", "-l", "gpuwright.io/part=holder", "--field-selector=status.phase=Running", "-o", "name")
        return len(self.kubectl(*words).split())

    def remove(self) -> None:
        self.kubectl("delete", self.name, "--wait=true")
        self.kubectl("delete", "replicasets", "-l", "gpuwright.io/part", "--wait=true")
        self.installed.remove()


@pytest.fixture
def daemon(pod_cluster: RunningCluster, tmp_path: Path) -> Iterator[Daemon]:
    namespace = pod_cluster.make_namespace("plane")
    made = Daemon(pod_cluster, tmp_path, namespace)
    yield made
    made.remove()
    pod_cluster.remove_namespace(namespace)


@pytest.mark.needs_root("to mount folders")
def test_a_node_of_the_pool_joins_holds_its_gpus_and_keeps_its_credential_when_its_agent_is_replaced(
    daemon: Daemon, pod_cluster: RunningCluster, database_url: str
) -> None:
    name = daemon.installed.name
    given = {
        "KUBECONFIG": str(daemon.installed.user("api").kubeconfig),
        "GPUWRIGHT_KUBERNETES_AGENTS": f"{daemon.installed.nodes}/{name}-runner",
    }
    with (
        running_server(database_url, **given) as server,
        pod_cluster.running_node("node-a.example", labels=LABELS, gpus=("GPU-1", "GPU-2")),
    ):
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
        assert first.startswith(f"kubernetes:system:serviceaccount:{daemon.installed.nodes}:{name}-runner/"), first
        until(lambda: daemon.count_holders() == 2, daemon.read_log)
        words = ("get", "pods", "-l", "app.kubernetes.io/component=agent")
        (pod,) = pod_cluster.read("-n", daemon.installed.nodes, *words)["items"]
        with examined(pod_cluster, pod) as findings:
            found = {one["check"]: (one["level"], one["found"]) for one in findings}
        assert found["gpu owner"] == ("ok", "pods of ours hold the 2 GPUs that the device plugin gives out")
        level, why = found["copy trial"]  # the image that has the program is in the agent's pod alone here
        assert level == "fail"
        assert "it did not run the program" in why or "exited by itself" in why, why
        state = (daemon.folder / "state").stat()
        assert (state.st_uid, stat.S_IMODE(state.st_mode)) == (64820, 0o700)
        daemon.kubectl("rollout", "restart", daemon.name)
        daemon.kubectl("rollout", "status", daemon.name, "--timeout=100s")
        until(reports, daemon.read_log)
        assert joins() == [first]
