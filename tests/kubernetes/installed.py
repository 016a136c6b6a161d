"""The chart, installed in a cluster that runs no pods."""

from __future__ import annotations

from pathlib import Path

from tests.kubernetes.cluster import Cluster, User
from tests.support.helm import CHART, Values, finish, run_helm
from tests.support.patience import until

SUCCEEDED = {
    "startTime": "2026-01-01T00:00:00Z",
    "completionTime": "2026-01-01T00:00:01Z",
    "succeeded": 1,
    "conditions": [
        {"type": name, "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}
        for name in ("SuccessCriteriaMet", "Complete")
    ],
}


class Installed:
    """A release of the chart in a namespace. Where no kubelet runs, the test says that the migration has succeeded."""

    def __init__(self, cluster: Cluster, folder: Path, namespace: str) -> None:
        self.cluster, self.folder, self.namespace = cluster, folder, namespace
        self.name = namespace  # roles of all namespaces have the release's name
        self.nodes = cluster.make_namespace("nodes")  # of agents and copies
        self.routes = cluster.make_namespace("routes")

    def run(self, verb: str, values: Values) -> None:
        before = self._migration()
        words = (verb, self.name, str(CHART), "--namespace", self.namespace)
        places = {"agent": self.nodes, "routes": self.routes}
        given = {**values, **{part: {**values.get(part, {}), "namespace": place} for part, place in places.items()}}
        helm = run_helm(self.folder, *words, values=given, KUBECONFIG=str(self.cluster.admin))
        until(lambda: helm.poll() is not None or self._migration() not in ("", before), "the migration")
        if helm.poll() is None:
            job = f"job/{self.name}-migrate"
            self.cluster.patch_status(self.namespace, job, SUCCEEDED)
        finish(helm)

    def _migration(self) -> str:
        found = self.cluster.read("-n", self.namespace, "get", "jobs")["items"]
        return found[0]["metadata"]["uid"] if found else ""

    def user(self, role: str) -> User:
        return self.cluster.log_in(self.namespace, f"{self.name}-{role}")

    def remove(self) -> None:
        helm = run_helm(
            self.folder, "uninstall", self.name, "--namespace", self.namespace, KUBECONFIG=str(self.cluster.admin)
        )
        finish(helm)
        self.cluster.remove_namespace(self.nodes)
        self.cluster.remove_namespace(self.routes)
