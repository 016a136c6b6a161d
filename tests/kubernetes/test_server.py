"""An API server of the tests' own: it holds recorded nodes, knows who asked for what, and guards pods by budgets."""

from __future__ import annotations

import pytest
from lightkube import ApiError
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import ConfigMap, Node, Pod

from scripts.kubernetes.programs import KUBERNETES
from tests.kubernetes.cluster import Cluster, Refused, Resource
from tests.kubernetes.recorded import Recorder, define_kind
from tests.kubernetes.server import ApiServer
from tests.kubernetes.test_clients import client_of
from tests.support.patience import until

pytestmark = pytest.mark.slow

GPU = "nvidia.com/gpu"


def gpu_node(name: str, gpus: int) -> Resource:
    labels = {f"{GPU}.product": "NVIDIA-L4", f"{GPU}.count": str(gpus)}
    sizes = {"cpu": "16", "memory": "64Gi", "pods": "110", GPU: str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": sizes, "allocatable": sizes, "conditions": [ready]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def running_pod(name: str, namespace: str, node: str, owner: Resource | None = None) -> Resource:
    metadata: Resource = {"name": name, "namespace": namespace, "labels": {"app": "chat"}}
    if owner:
        named = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"]}
        metadata["ownerReferences"] = [{**named, "controller": True}]
    container = {"name": "model", "image": "registry.example/model:1", "resources": {"limits": {GPU: "1"}}}
    ready = {"type": "Ready", "status": "True"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 0},
        "status": {"phase": "Running", "conditions": [ready]},
    }


def test_nodes_and_pods_are_as_they_were_recorded(
    api_server: ApiServer, cluster: Cluster, recorder: Recorder, namespace: str
) -> None:
    group = define_kind("example.com", "v1", "Group", "groups", scale=".spec.replicas")
    recorder.put([group, gpu_node("gpu-a", 8), gpu_node("gpu-b", 4)])
    cluster.kubectl("wait", "--for=condition=Established", "crd/groups.example.com")
    owner = {
        "apiVersion": "example.com/v1", "kind": "Group", "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"replicas": 2, "size": 4}, "status": {"replicas": 2, "selector": "app=chat"},
    }  # fmt: skip
    recorder.put([owner])
    recorder.put([running_pod(f"chat-{place}", namespace, "gpu-a", owner) for place in range(2)])

    with client_of(api_server.admin) as client:
        nodes = [one for one in client.list(Node) if one.metadata and one.metadata.name in ("gpu-a", "gpu-b")]
        assert [one.status.allocatable[GPU] for one in nodes if one.status and one.status.allocatable] == ["8", "4"]
        pods = list(client.list(Pod, namespace=namespace))
    assert [one.status.phase for one in pods if one.status] == ["Running"] * 2
    made = cluster.read("-n", namespace, "get", "groups.example.com/chat")
    assert {owner.uid for one in pods if one.metadata for owner in one.metadata.ownerReferences or ()} == {
        made["metadata"]["uid"]
    }
    cluster.kubectl("-n", namespace, "scale", "groups.example.com/chat", "--replicas=3")
    assert cluster.read("-n", namespace, "get", "groups.example.com/chat")["spec"] == {"replicas": 3, "size": 4}
    cluster.kubectl("delete", "node", "gpu-a", "gpu-b")


def test_the_audit_log_has_each_request_of_a_user_by_its_verb(
    api_server: ApiServer, cluster: Cluster, namespace: str
) -> None:
    began = api_server.audit.mark()
    user = cluster.add_user(namespace, "watched")
    cluster.grant(user, [("", "pods", "get,list")])
    until(lambda: cluster.may(user, "list", "pods"), "rights")
    with client_of(user.kubeconfig) as client:
        for _ in range(3):
            list(client.list(Pod))
        assert not api_server.audit.writes(user.name, began)
        with pytest.raises(ApiError, match="cannot delete"):
            client.delete(Pod, "chat")
    verbs = api_server.audit.verbs(user.name, began)
    assert (verbs["list"], verbs["delete"]) == (3, 1)
    [tried] = api_server.audit.writes(user.name, began)
    assert (tried.verb, tried.resource, tried.namespace) == ("delete", "pods", namespace)
    until(lambda: [one.status for one in api_server.audit.writes(user.name, began)] == [403], "the answer in the log")


def test_who_asks_for_a_version_that_is_forgotten_is_told_that_it_is_gone(
    api_server: ApiServer, cluster: Cluster, namespace: str
) -> None:
    with client_of(api_server.admin, namespace) as client:
        first = client.create(ConfigMap(metadata=ObjectMeta(name="first")))
        for place in range(3):
            client.create(ConfigMap(metadata=ObjectMeta(name=f"next-{place}")))
        chunks = iter(client.list(ConfigMap, chunk_size=1))
        next(chunks)
        cluster.kubectl("-n", namespace, "label", "configmap/next-2", "a=b")
        api_server.forget_history()
        assert first.metadata
        with pytest.raises(ApiError) as watched:
            next(iter(client.watch(ConfigMap, resource_version=first.metadata.resourceVersion)))
        with pytest.raises(ApiError) as listed:
            list(chunks)
    assert (watched.value.status.code, listed.value.status.code) == (410, 410)


@pytest.mark.usefixtures("controllers")
def test_a_pod_is_evicted_unless_its_budget_forbids_it(cluster: Cluster, recorder: Recorder, namespace: str) -> None:
    budget = {
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "chat", "namespace": namespace},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "chat"}}},
    }  # fmt: skip
    recorder.put([budget, *(running_pod(f"chat-{place}", namespace, "gone") for place in range(3))])

    def evict(name: str) -> None:
        metadata = {"name": name, "namespace": namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
        place = f"/api/v1/namespaces/{namespace}/pods/{name}/eviction"
        cluster.kubectl("create", "--raw", place, "-f", "-", given=eviction)

    def allowed() -> int:
        status = cluster.read("-n", namespace, "get", "pdb/chat")["status"]
        return int(status.get("disruptionsAllowed", 0))

    until(lambda: allowed() == 1, "the budget's status")
    evict("chat-0")
    until(lambda: allowed() == 0, "the budget's status")
    with pytest.raises(Refused, match="would violate the pod's disruption budget"):
        evict("chat-1")
    left = cluster.read("-n", namespace, "get", "pods")["items"]
    assert [one["metadata"]["name"] for one in left] == ["chat-1", "chat-2"]


@pytest.mark.usefixtures("controllers")
def test_a_deployment_has_the_pods_that_its_scale_says(cluster: Cluster, namespace: str) -> None:
    cluster.kubectl("-n", namespace, "create", "deployment", "chat", "--image=registry.example/model:1", "--replicas=2")

    def pods() -> int:
        return len(cluster.read("-n", namespace, "get", "pods", "-l", "app=chat")["items"])

    until(lambda: pods() == 2, "two pods")
    cluster.kubectl("-n", namespace, "scale", "deployment/chat", "--replicas=3")
    until(lambda: pods() == 3, "three pods")


def test_the_server_says_the_release_that_it_was_built_from(cluster: Cluster, api_server: ApiServer) -> None:
    assert cluster.read("version")["serverVersion"]["gitVersion"] == KUBERNETES.read_version()
