"""What the token of a gateway of a cluster may do: write routes in its namespace, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gateways.site import ROUTES
from tests.kubernetes.installed import Installed
from tests.support.helm import EVERYTHING

pytestmark = pytest.mark.slow

RIGHTS = {  # with which routes are tested
    (verb, f"{resource}.{group}".rstrip(".")) for group, resource, verbs in ROUTES for verb in verbs.split(",")
}
DENIED = (
    "get secrets", "list configmaps", "create pods", "list pods", "patch pods", "create pods --subresource=exec",
    "patch httproutes.gateway.networking.k8s.io --subresource=status", "patch gateways.gateway.networking.k8s.io",
    "create gateways.gateway.networking.k8s.io", "create referencegrants.gateway.networking.k8s.io",
    "deletecollection services", "update services", "patch services --subresource=status", "create endpoints",
    "deletecollection endpointslices.discovery.k8s.io", "delete leases.coordination.k8s.io", "create deployments.apps",
    "create serviceaccounts --subresource=token", "create rolebindings.rbac.authorization.k8s.io", "list nodes",
    "impersonate users",
)  # fmt: skip


def test_a_gateway_writes_routes_in_its_namespace_and_nothing_else_anywhere(
    cluster: Cluster, tmp_path: Path, namespace: str
) -> None:
    installed = Installed(cluster, tmp_path, namespace)
    try:
        installed.run("install", {"routes": EVERYTHING["routes"], "migrate": {"enabled": False}})
        account = f"{namespace}-routes"
        user, nobody = cluster.log_in(installed.routes, account), cluster.add_user(installed.routes, "nobody")
        assert cluster.list_rights(user) - cluster.list_rights(nobody) == RIGHTS
        assert [words for words in DENIED if cluster.may(user, *words.split())] == []
        elsewhere = [*cluster.read("-n", namespace, "get", "rolebindings")["items"]]
        everywhere = cluster.read("get", "clusterrolebindings")["items"]
        subjects = [each.get("subjects") or () for each in (*elsewhere, *everywhere)]
        assert account not in [subject["name"] for found in subjects for subject in found]
    finally:
        installed.remove()
