"""The chart on an API server: it installs and upgrades, and its roles may do what they say and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusters.objects import KINDS
from tests.kubernetes.cluster import Cluster, Refused
from tests.kubernetes.installed import Installed
from tests.kubernetes.recorded import Recorder, define_kind
from tests.kubernetes.server import ApiServer
from tests.kubernetes.test_clients import deployment
from tests.support.forked import ROOT
from tests.support.helm import CHART, EVERYTHING, render, run_helm
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

OPERATOR = "monitoring.coreos.com"


@pytest.fixture(scope="module")
def kinds_of_others(api_server: ApiServer, cluster: Cluster) -> None:
    """What operators define, of which the chart makes objects or names in its roles."""
    Recorder(api_server.admin).put(
        [
            define_kind(OPERATOR, "v1", "ServiceMonitor", "servicemonitors"),
            define_kind(OPERATOR, "v1", "PrometheusRule", "prometheusrules"),
            define_kind(
                "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", scale=".spec.replicas"
            ),
            define_kind("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
            define_kind("argoproj.io", "v1alpha1", "Rollout", "rollouts"),
        ]
    )
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all")


@pytest.fixture
def installed(kinds_of_others: None, cluster: Cluster, tmp_path: Path, namespace: str) -> Iterator[Installed]:
    made = Installed(cluster, tmp_path, namespace)
    made.run("install", EVERYTHING)
    yield made
    made.remove()


def test_it_is_installed_upgraded_and_removed_and_leaves_nothing(
    kinds_of_others: None, cluster: Cluster, tmp_path: Path, namespace: str
) -> None:
    made = Installed(cluster, tmp_path, namespace)
    made.run("install", EVERYTHING)
    kinds = (
        "deployments,daemonsets,jobs,services,networkpolicies,poddisruptionbudgets,configmaps,"
        "servicemonitors,prometheusrules"
    )
    found = cluster.read("-n", namespace, "get", kinds)["items"]
    ours = sorted((one["kind"], one["metadata"]["name"].removeprefix(f"{namespace}-")) for one in found)
    assert not [name for kind, name in ours if kind == "Job"], "the migration has succeeded"
    assert [name for kind, name in ours if kind == "Deployment"] == ["api", "gateway", "planner", "scaler"]
    assert [name for kind, name in ours if kind == "ServiceMonitor"] == ["agent", "api", "gateway", "planner", "scaler"]
    on_nodes = cluster.read("-n", made.nodes, "get", f"{kinds},roles,rolebindings")["items"]
    there = {(one["kind"], one["metadata"]["name"].removeprefix(f"{namespace}-")) for one in on_nodes}
    assert there >= {("DaemonSet", "agent-a100"), ("PodDisruptionBudget", "gpuwright-copies"), ("Role", "runner")}

    made.run("upgrade", {**EVERYTHING, "image": {"tag": "0.2.0"}, "gateway": {"enabled": False}})
    [server] = [
        one for one in cluster.read("-n", namespace, "get", "deployments")["items"] if "api" in one["metadata"]["name"]
    ]
    assert server["spec"]["template"]["spec"]["containers"][0]["image"].endswith("/gpuwright-api:0.2.0")
    with pytest.raises(Refused, match="not found"):
        cluster.read("-n", namespace, "get", f"deployment/{namespace}-gateway")

    made.remove()
    for place in (namespace, made.nodes, made.routes):
        left = cluster.read("-n", place, "get", f"{kinds},serviceaccounts,roles,rolebindings")["items"]
        assert {one["metadata"]["name"] for one in left} <= {"default", "kube-root-ca.crt"}
    policies = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    assert namespace not in cluster.kubectl("get", f"clusterroles,clusterrolebindings,{policies}", "-o", "name")


READ = tuple(kind.display_name for kind in KINDS)
SCALED = ("deployments/scale.apps", "statefulsets/scale.apps", "leaderworkersets/scale.leaderworkerset.x-k8s.io")
READING = {(verb, resource) for verb in ("get", "list") for resource in READ}
SCALING = {(verb, resource) for verb in ("patch", "update") for resource in SCALED}


def test_every_pod_is_let_into_a_namespace_that_restricts_pods(
    cluster: Cluster, tmp_path: Path, namespace: str
) -> None:
    cluster.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    templates = [
        one["spec"]["template"] for one in render(tmp_path, EVERYTHING) if one["kind"] in ("Deployment", "Job")
    ]
    tried = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{place}"}, "spec": one["spec"]}
        for place, one in enumerate(templates)
    ]
    admitting = ("-n", namespace, "create", "--dry-run=server", "-f", "-")
    listed = {"apiVersion": "v1", "kind": "List", "items": tried}
    assert cluster.kubectl(*admitting, given=listed).count("created") == 6
    tried[0]["spec"]["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = True
    with pytest.raises(Refused, match='violates PodSecurity "restricted'):
        cluster.kubectl(*admitting, given=tried[0])


def test_an_agents_pod_is_let_into_no_namespace_but_one_for_privileged_pods(
    cluster: Cluster, tmp_path: Path, namespace: str
) -> None:
    values = {**EVERYTHING, "agent": {**EVERYTHING["agent"], "runtimeClass": ""}}  # which the GPU operator makes
    made = [one["spec"]["template"] for one in render(tmp_path, values) if one["kind"] == "DaemonSet"]
    pods = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{place}"}, "spec": one["spec"]}
        for place, one in enumerate(made)
    ]
    assert len(pods) == 2
    admitting = ("-n", namespace, "create", "--dry-run=server", "-f", "-")
    level = ("label", "--overwrite", "namespace", namespace)
    for pod in pods:
        cluster.kubectl(*level, "pod-security.kubernetes.io/enforce=baseline")
        with pytest.raises(Refused, match='violates PodSecurity "baseline'):
            cluster.kubectl(*admitting, given=pod)
        cluster.kubectl(*level, "pod-security.kubernetes.io/enforce=privileged")
        assert "created" in cluster.kubectl(*admitting, given=pod)


def test_a_server_may_review_tokens_and_list_nodes_and_nothing_else(installed: Installed, cluster: Cluster) -> None:
    server, nobody = installed.user("api"), cluster.add_user(installed.namespace, "nobody")
    assert cluster.list_rights(server) - cluster.list_rights(nobody) == {
        ("create", "tokenreviews.authentication.k8s.io"),
        ("list", "nodes"),
    }


def test_a_planner_may_make_get_and_delete_claims_of_karpenter_and_nothing_else(
    installed: Installed, cluster: Cluster
) -> None:
    planner, nobody = installed.user("planner"), cluster.add_user(installed.namespace, "nobody")
    assert cluster.list_rights(planner) - cluster.list_rights(nobody) == {
        (verb, "nodeclaims.karpenter.sh") for verb in ("create", "get", "delete")
    }


def test_a_reader_may_read_what_an_estate_is_made_of_and_write_nothing(
    installed: Installed, api_server: ApiServer, cluster: Cluster
) -> None:
    reader, nobody = installed.user("reader"), cluster.add_user(installed.namespace, "nobody")
    cluster.kubectl("-n", installed.namespace, "create", "-f", "-", given=deployment("chat", 2))
    began = api_server.audit.mark()
    for resource in READ:
        cluster.kubectl("get", resource, "--all-namespaces", user=reader)
    for resource in ("secrets", "configmaps", "serviceaccounts", "clusterroles"):
        with pytest.raises(Refused, match="forbidden"):
            cluster.kubectl("get", resource, "--all-namespaces", user=reader)
    assert not api_server.audit.writes(reader.name, began)
    for words in (
        ("scale", "deployment/chat", "--replicas=3"),
        ("label", "deployment/chat", "a=b"),
        ("delete", "deployment/chat"),
        ("create", "token", f"{installed.name}-scaler"),
        ("create", "configmap", "made"),
    ):
        with pytest.raises(Refused, match="forbidden"):
            cluster.kubectl("-n", installed.namespace, *words, user=reader)
    tried = api_server.audit.writes(reader.name, began)
    assert tried
    until(
        lambda: {one.status for one in api_server.audit.writes(reader.name, began)} == {403}, "the answers in the log"
    )
    assert cluster.list_rights(reader) - cluster.list_rights(nobody) == READING


def test_a_reader_may_assess_the_cluster(installed: Installed, api_server: ApiServer) -> None:
    reader, began = installed.user("reader"), api_server.audit.mark()
    words = [sys.executable, "-m", "cli.main", "assess", "--kubeconfig", str(reader.kubeconfig)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert done.returncode == 0, done.stderr
    asked = api_server.audit.requests(reader.name, began)
    assert {one.resource for one in asked if one.verb == "list"} == {kind.plural for kind in KINDS}
    assert {one.status for one in asked} <= {200, 404}
    assert not api_server.audit.writes(reader.name, began)


def test_a_scaler_may_change_replicas_and_nothing_else_of_what_runs(installed: Installed, cluster: Cluster) -> None:
    scaler, nobody = installed.user("scaler"), cluster.add_user(installed.namespace, "nobody")
    place = ("-n", installed.namespace)
    cluster.kubectl(*place, "create", "-f", "-", given=deployment("chat", 2))
    cluster.kubectl(*place, "scale", "deployment/chat", "--replicas=3", user=scaler)
    assert cluster.read(*place, "get", "deployment/chat", user=scaler)["spec"]["replicas"] == 3
    for words in (
        ("set", "image", "deployment/chat", "model=registry.example/other:1"),
        ("label", "deployment/chat", "a=b"),
        ("delete", "deployment/chat"),
        ("delete", "pod/chat"),
        ("run", "chat", "--image=registry.example/other:1"),
        ("get", "secrets"),
    ):
        with pytest.raises(Refused, match="forbidden"):
            cluster.kubectl(*place, *words, user=scaler)
    assert cluster.list_rights(scaler) - cluster.list_rights(nobody) == READING | SCALING


def test_a_scaler_of_one_namespace_changes_no_other(
    kinds_of_others: None, cluster: Cluster, tmp_path: Path, namespace: str
) -> None:
    other = cluster.make_namespace("other")
    made = Installed(cluster, tmp_path, namespace)
    made.run("install", {"roles": {"scaler": {"enabled": True, "namespaces": [other]}}, "migrate": {"enabled": False}})
    scaler = made.user("scaler")
    for place in (namespace, other):
        cluster.kubectl("-n", place, "create", "-f", "-", given=deployment("chat", 2))
    cluster.kubectl("-n", other, "scale", "deployment/chat", "--replicas=3", user=scaler)
    with pytest.raises(Refused, match="forbidden"):
        cluster.kubectl("-n", namespace, "scale", "deployment/chat", "--replicas=3", user=scaler)
    made.remove()
    cluster.remove_namespace(other)


def test_a_kubeconfig_of_nobody_installs_nothing(cluster: Cluster, tmp_path: Path, namespace: str) -> None:
    user = cluster.add_user(namespace, "nobody")
    helm = run_helm(
        tmp_path, "install", "mine", str(CHART), "-n", namespace, values={}, KUBECONFIG=os.fspath(user.kubeconfig)
    )
    _, complained = helm.communicate()
    assert helm.returncode and "forbidden" in complained
