"""A cluster that holds recorded objects and nothing else, and users who may read it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.clusters.made_up import Item, heading, pod_spec
from tests.kubernetes.cluster import Cluster, Rule, User
from tests.kubernetes.recorded import Recorder, define_kind
from tests.kubernetes.server import ApiServer
from tests.support.patience import until

PLACE = "assess"  # namespace of the users
READS = "get,list"
ALL_LISTS: list[Rule] = [
    ("", "nodes,pods", READS),
    ("apps", "deployments,replicasets,statefulsets", READS),
    ("batch", "jobs", READS),
    ("autoscaling", "horizontalpodautoscalers", READS),
    ("policy", "poddisruptionbudgets", READS),
    ("leaderworkerset.x-k8s.io", "leaderworkersets", READS),
    ("keda.sh", "scaledobjects", READS),
    ("argoproj.io", "rollouts", READS),
    ("resource.k8s.io", "resourceslices,resourceclaims", READS),
]
DEFINED = (  # group, version, kind, plural
    ("leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", "leaderworkersets"),
    ("keda.sh", "v1alpha1", "ScaledObject", "scaledobjects"),
    ("serving.kserve.io", "v1beta1", "InferenceService", "inferenceservices"),
    ("ray.io", "v1", "RayCluster", "rayclusters"),
)


class RecordedCluster:
    """An API server that holds what is put into it, because no controller runs. It is emptied after each use."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.administered = Cluster(server.admin, server.folder)
        recorder = Recorder(server.admin)
        recorder.put([define_kind(*words) for words in DEFINED])
        self.administered.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        recorder.put([_namespace(PLACE)])
        self._namespaces = {PLACE}

    @contextmanager
    def filled(self, items: list[Item]) -> Iterator[None]:
        """Puts the objects there, owners before what they own, with owners of other kinds that they name."""
        recorder = Recorder(self.server.admin)
        spaces = {item["metadata"]["namespace"] for item in items if "namespace" in item["metadata"]}
        recorder.put(map(_namespace, sorted(spaces - self._namespaces)))
        self._namespaces |= spaces
        made = Recorder(self.server.admin)
        known = {_key(item) for item in items}
        left = [*_strangers(items, known), *items]
        put: set[tuple[str, str, str]] = set()
        try:
            while left:
                ready = [item for item in left if _owners(item) <= put]
                assert ready, f"nothing owns {left[0]['metadata']}"
                made.put(ready)
                put |= set(map(_key, ready))
                left = [item for item in left if _key(item) not in put]
            yield
        finally:
            made.remove_all()

    def add_reader(self, name: str, rules: list[Rule], proof: str = "nodes") -> User:
        """Returns a user with these rights, once the server knows of them: `proof` is something that it may list."""
        user = self.administered.add_user(PLACE, name)
        self.administered.grant(user, rules, everywhere=True)
        until(lambda: self.administered.may(user, "list", proof), "rights")
        return user


def _namespace(name: str) -> Item:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def _key(item: Item) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def _owners(item: Item) -> set[tuple[str, str, str]]:
    namespace = item["metadata"].get("namespace", "")
    return {(owner["kind"], namespace, owner["name"]) for owner in item["metadata"].get("ownerReferences", ())}


def _strangers(items: list[Item], known: set[tuple[str, str, str]]) -> list[Item]:
    """Returns owners that the objects name and that are not among them, as a CronJob of jobs."""
    found = {}
    for item in items:
        for owner in item["metadata"].get("ownerReferences", ()):
            key = (owner["kind"], item["metadata"]["namespace"], owner["name"])
            if key not in known:
                found[key] = heading(owner["apiVersion"], owner["kind"], key[1], owner["name"])
    template = {"spec": {"template": {"spec": {**pod_spec("job:1", 1), "restartPolicy": "Never"}}}}
    for (kind, *_), item in found.items():
        item["spec"] = {"schedule": "0 1 * * *", "jobTemplate": template} if kind == "CronJob" else {}
    return list(found.values())
