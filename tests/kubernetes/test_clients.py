"""kubectl and lightkube on an API server: what each reads and writes, and what each is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from lightkube import ApiError, Client, KubeConfig
from lightkube.models.autoscaling_v1 import ScaleSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType

from tests.kubernetes.cluster import Cluster, Refused, Resource, User
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

IMAGE = "registry.example/model:1"
WORKS_ON = (
    ("apps", "deployments,deployments/scale", "get,list,watch,create,update,patch,delete"),
    ("", "configmaps", "get,list,watch,create,update,patch,delete"),
)


def deployment(name: str, replicas: int) -> Resource:
    labels = {"app": name}
    pod = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "model", "image": IMAGE}]}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def worker(cluster: Cluster, namespace: str) -> User:
    """May do everything to deployments of its namespace."""
    user = cluster.add_user(namespace, "worker")
    cluster.grant(user, WORKS_ON)
    return user


@contextmanager
def client_of(kubeconfig: Path, namespace: str | None = None) -> Iterator[Client]:
    config, timeout = KubeConfig.from_file(kubeconfig), httpx2.Timeout(patience())
    with Client(config, namespace=namespace, timeout=timeout, field_manager="tests") as client:
        yield client


@pytest.fixture
def client(worker: User) -> Iterator[Client]:
    with client_of(worker.kubeconfig) as made:
        yield made


def test_kubectl_makes_scales_changes_and_removes_a_deployment(cluster: Cluster, worker: User) -> None:
    cluster.kubectl("create", "-f", "-", user=worker, given=deployment("chat", 2))
    cluster.kubectl("scale", "deployment/chat", "--replicas=3", "--current-replicas=2", user=worker)
    cluster.kubectl("label", "deployment/chat", "team=search", user=worker)
    found = cluster.read("get", "deployment/chat", user=worker)
    assert (found["spec"]["replicas"], found["metadata"]["labels"]) == (3, {"team": "search"})
    with pytest.raises(Refused, match="Expected replicas to be 2, was 3"):
        cluster.kubectl("scale", "deployment/chat", "--replicas=4", "--current-replicas=2", user=worker)
    cluster.kubectl("delete", "deployment/chat", user=worker)
    with pytest.raises(Refused, match="not found"):
        cluster.read("get", "deployment/chat", user=worker)


def test_two_who_apply_the_same_field_are_told_of_each_other(cluster: Cluster, worker: User, client: Client) -> None:
    apply = ("apply", "--server-side", "-f", "-", "--field-manager=them")
    cluster.kubectl(*apply, user=worker, given=deployment("chat", 2))
    mine = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "chat"}, "spec": {"replicas": 5}}
    with pytest.raises(ApiError, match=r'conflict with "them": \.spec\.replicas'):
        client.patch(Deployment, "chat", mine, patch_type=PatchType.APPLY)
    client.patch(Deployment, "chat", mine, patch_type=PatchType.APPLY, force=True)
    with pytest.raises(Refused, match=r'conflict with "tests": \.spec\.replicas'):
        cluster.kubectl(*apply, user=worker, given=deployment("chat", 2))
    found = client.get(Deployment, "chat")
    assert found.spec and found.spec.replicas == 5
    assert found.metadata and found.metadata.managedFields
    fields = [one for one in found.metadata.managedFields if not one.subresource]  # the status is a controller's
    owners = {one.manager for one in fields if "f:replicas" in str(one.fieldsV1)}
    assert owners == {"tests"}


def test_who_writes_what_another_has_changed_since_is_refused(cluster: Cluster, worker: User, client: Client) -> None:
    cluster.kubectl("create", "-f", "-", user=worker, given=deployment("chat", 2))
    whole, scale = client.get(Deployment, "chat"), client.get(Deployment.Scale, "chat")
    cluster.kubectl("scale", "deployment/chat", "--replicas=3", user=worker)
    assert whole.spec
    whole.spec.replicas, scale.spec = 7, ScaleSpec(replicas=7)
    for stale in (lambda: client.replace(whole), lambda: client.replace(scale, "chat")):
        with pytest.raises(ApiError) as refused:
            stale()
        assert refused.value.status.code == 409
    fresh = client.get(Deployment.Scale, "chat")
    fresh.spec = ScaleSpec(replicas=4)
    client.replace(fresh, "chat")
    assert cluster.read("get", "deployment/chat", user=worker)["spec"]["replicas"] == 4


def test_a_watch_tells_what_came_after_a_version(cluster: Cluster, worker: User, client: Client) -> None:
    first = client.create(ConfigMap(metadata=ObjectMeta(name="first")))
    assert first.metadata
    client.create(ConfigMap(metadata=ObjectMeta(name="second")))
    cluster.kubectl("patch", "configmap/second", "-p", '{"data": {"a": "b"}}', user=worker)
    cluster.kubectl("delete", "configmap/second", user=worker)
    seen = []
    for verb, one in client.watch(ConfigMap, resource_version=first.metadata.resourceVersion):
        assert one.metadata
        if one.metadata.name == "second":
            seen.append((verb, one.data))
            if verb == "DELETED":
                break
    assert seen == [("ADDED", None), ("MODIFIED", {"a": "b"}), ("DELETED", {"a": "b"})]


def test_a_reader_reads_and_every_write_of_it_is_refused(cluster: Cluster, worker: User) -> None:
    cluster.kubectl("create", "-f", "-", user=worker, given=deployment("chat", 2))
    reader = cluster.add_user(worker.namespace, "reader")
    with client_of(reader.kubeconfig) as client:
        with pytest.raises(ApiError, match="cannot list resource"):
            list(client.list(Deployment))
        cluster.grant(reader, [("apps", "deployments", "get,list,watch")])
        until(lambda: cluster.may(reader, "list", "deployments.apps"), "rights of the reader")
        assert [one.metadata.name for one in client.list(Deployment) if one.metadata] == ["chat"]
        for write in (
            lambda: client.patch(Deployment, "chat", {"spec": {"replicas": 9}}),
            lambda: client.patch(Deployment.Scale, "chat", {"spec": {"replicas": 9}}),
            lambda: client.delete(Deployment, "chat"),
        ):
            with pytest.raises(ApiError) as refused:
                write()
            assert refused.value.status.code == 403


def test_a_token_that_is_not_of_this_cluster_is_refused(worker: User) -> None:
    worker.kubeconfig.write_text(worker.kubeconfig.read_text().replace('"token": "', '"token": "x'))
    with client_of(worker.kubeconfig) as client, pytest.raises(ApiError) as refused:
        client.get(Deployment, "chat")
    assert refused.value.status.code == 401
