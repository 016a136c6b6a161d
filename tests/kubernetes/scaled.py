"""Adopted workloads on an API server, found and written as a scaler does it, by a user who has exactly its role."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from clusters.api_server import read_cluster
from clusters.estate import OURS
from clusters.kubeconfigs import choose_cluster
from clusters.objects import ClusterObjects
from clusters.promises import find_promises
from clusters.reading import read_estate
from clusters.scaling.adoption import AdoptedWorkload, find_adopted
from clusters.scaling.server import ANSWER_SECONDS, ScaleServer, open_server
from clusters.scaling.sightings import Sighting, note_sightings
from tests.clusters.made_up import pod_spec
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.recorded import Recorder, define_kind
from tests.kubernetes.server import ApiServer
from tests.support.helm import CHART, finish, run_helm

Item = dict[str, Any]
HOME = "gpuwright-scaling"
ROLE_KINDS = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "RoleBinding")
DEFINED = (
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets", ".spec.replicas"),
    ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    ("argoproj.io", "v1alpha1", "Rollout", "rollouts"),
)
EXACT = {f"{OURS}service": "ranker", f"{OURS}mode": "auto", f"{OURS}max-replicas": "40"}


def adopted_deployment(name: str, replicas: int, **annotations: str) -> Item:
    """A Deployment that is adopted; `max_replicas="9"` is the annotation `gpuwright.io/max-replicas`."""
    given = {
        **EXACT,
        f"{OURS}service": name,
        **{OURS + key.replace("_", "-"): text for key, text in annotations.items()},
    }
    return workload("apps/v1", "Deployment", name, replicas, given)


def workload(api: str, kind: str, name: str, replicas: int | None, annotations: Mapping[str, str]) -> Item:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod_spec("registry.example/model:1", 1)}
    spec: Item = {} if replicas is None else {"replicas": replicas}
    if kind == "LeaderWorkerSet":
        spec |= {"leaderWorkerTemplate": {"size": 2, "workerTemplate": template}}
    else:
        spec |= {"selector": {"matchLabels": labels}, "template": template}
    if kind == "StatefulSet":
        spec["serviceName"] = name
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "annotations": dict(annotations)}, "spec": spec}


class ScalingServer:
    """An API server with adopted workloads, and users who have the chart's role `scaler` and nothing else."""

    def __init__(self, server: ApiServer) -> None:
        self.server, self.cluster = server, Cluster(server.admin, server.folder)
        Recorder(server.admin).put([define_kind(*words) for words in DEFINED])
        self.cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        self.cluster.kubectl("create", "namespace", HOME)
        values = {"roles": {"reader": {"enabled": True}, "scaler": {"enabled": True}}}
        helm = run_helm(server.folder, "template", HOME, str(CHART), "--namespace", HOME, values=values)
        roles = [each for each in yaml.safe_load_all(finish(helm)) if each and each["kind"] in ROLE_KINDS]
        self.put(HOME, *roles)
        self.user = self.cluster.log_in(HOME, f"{HOME}-scaler")
        self.reader = self.cluster.log_in(HOME, f"{HOME}-reader")

    @contextmanager
    def namespace(self) -> Iterator[str]:
        name = self.cluster.make_namespace("scaled")
        yield name
        self.cluster.kubectl("delete", "namespace", name, "--wait=false")

    def put(self, namespace: str, *items: Item) -> None:
        self.cluster.kubectl("-n", namespace, "create", "-f", "-", given=listed(items))

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        """Scales it by hand."""
        self.cluster.kubectl("-n", namespace, "scale", name, f"--replicas={replicas}")

    def managers(self, namespace: str, name: str) -> list[tuple[str, str, str, bool]]:
        """Returns manager, operation, subresource, and whether there is a time, of those who have the replicas."""
        found = self.cluster.read("-n", namespace, "get", name, "--show-managed-fields")
        return [
            (each["manager"], each["operation"], each.get("subresource", ""), "time" in each)
            for each in found["metadata"]["managedFields"]
            if "f:replicas" in each["fieldsV1"].get("f:spec", {})
        ]

    def replicas(self, namespace: str, name: str) -> int:
        return int(self.cluster.read("-n", namespace, "get", name)["spec"]["replicas"])


def listed(items: Iterable[Item]) -> Item:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}


class Scaler:
    """What a scaler's process does with a cluster, one act at a time."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        self.config = choose_cluster(None, str(kubeconfig), {})
        self.namespace = namespace
        self.seen: dict[str, Sighting] = {}
        self.pauses: list[float] = []

    def read(self) -> ClusterObjects:
        return read_cluster(self.config, self.pauses.append, lambda *_: None)

    def find(self, objects: ClusterObjects | None = None) -> dict[str, AdoptedWorkload]:
        """Returns the adopted workloads by name, as they are now."""
        found = objects or self.read()
        estate = read_estate(found)
        self.seen = note_sightings(found, self.seen)
        adopted = find_adopted(found, estate, find_promises(estate), self.seen)
        return {each.name.name: each for each in adopted if each.name.namespace == self.namespace}

    def wait(self, minutes: float) -> None:
        """Lets time pass since whatever has been seen."""
        self.seen = {
            uid: replace(each, since=each.since - timedelta(minutes=minutes)) for uid, each in self.seen.items()
        }

    @contextmanager
    def server(self, answer_seconds: float = ANSWER_SECONDS) -> Iterator[ScaleServer]:
        with open_server(self.config, answer_seconds) as found:
            yield found


class Permission:
    """A `may_write` that says yes, remembers for which versions, and lets something happen before the write."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self.versions: list[str] = []
        self._act = act

    def __call__(self, version: str) -> bool:
        self.versions.append(version)
        self._act()
        return True
