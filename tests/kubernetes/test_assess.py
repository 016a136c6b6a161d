"""`gpuwright assess` on a real API server: it reads what was recorded, to the cent, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.main import main
from clusters.api_server import PAGE_OBJECTS, read_cluster
from clusters.estate import Estate
from clusters.kubeconfigs import choose_cluster
from clusters.objects import ClusterObjects, objects_of
from clusters.reading import read_estate
from tests.clusters import demo
from tests.clusters.made_up import Item, deployment, heading, node, pod_spec
from tests.kubernetes.cluster import Cluster, Rule, User
from tests.kubernetes.recorded import Recorder, define_kind
from tests.kubernetes.server import ApiServer, running_api_server
from tests.support.patience import until
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

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


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """One that has the demo's objects and nothing else."""
    with running_api_server(tmp_path_factory.mktemp("assessed")) as found:
        fill(found, list(demo.items()))
        yield found


@pytest.fixture(scope="module")
def administered(server: ApiServer, tmp_path_factory: pytest.TempPathFactory) -> Cluster:
    return Cluster(server.admin, tmp_path_factory.mktemp("assessors"))


def fill(server: ApiServer, items: list[Item]) -> None:
    """Puts the objects there, owners before what they own, with owners of other kinds that they name."""
    recorder = Recorder(server.admin)
    recorder.put([define_kind(*words) for words in DEFINED])
    cluster = Cluster(server.admin, server.folder)
    cluster.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    spaces = {item["metadata"]["namespace"] for item in items if "namespace" in item["metadata"]} | {PLACE}
    recorder.put([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in sorted(spaces)])
    known = {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in items}
    left = [*strangers(items, known), *items]
    put: set[tuple[str, str, str]] = set()
    while left:
        ready = [item for item in left if owners(item) <= put]
        assert ready, f"nothing owns {left[0]['metadata']}"
        recorder.put(ready)
        put |= {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in ready}
        left = [item for item in left if item not in ready]


def owners(item: Item) -> set[tuple[str, str, str]]:
    namespace = item["metadata"].get("namespace", "")
    return {(owner["kind"], namespace, owner["name"]) for owner in item["metadata"].get("ownerReferences", ())}


def strangers(items: list[Item], known: set[tuple[str, str, str]]) -> list[Item]:
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


def reader(cluster: Cluster, name: str, rules: list[Rule]) -> User:
    user = cluster.add_user(PLACE, name)
    cluster.grant(user, rules, everywhere=True)
    until(lambda: cluster.may(user, "list", "nodes"), "rights")
    return user


def read_as(user: User) -> ClusterObjects:
    return read_cluster(choose_cluster(None, str(user.kubeconfig), {}), no_pause, lambda *_: None)


def no_pause(seconds: float) -> None:
    raise AssertionError(f"the server asks for {seconds} s")


def figures(estate: Estate) -> tuple[object, ...]:
    return estate.nodes, estate.workloads, estate.pods, estate.nodes_without_gpus, estate.unknown


def test_the_estate_is_the_recorded_one_and_a_reader_writes_nothing(
    server: ApiServer, administered: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = reader(administered, "reader", ALL_LISTS)
    began = server.audit.mark()
    assert figures(read_estate(read_as(user))) == figures(read_estate(objects_of(demo.items())))
    prices = tmp_path / "prices.yaml"
    prices.write_text(demo.PRICES)
    assert main(["assess", "--kubeconfig", str(user.kubeconfig), "--prices", str(prices), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nanoPerHour"] == 166_070_084_000
    assert server.audit.writes(user.name, began) == []
    assert set(server.audit.verbs(user.name, began)) == {"list"}


def test_what_a_user_may_not_list_has_a_sentence_and_the_rest_stands(administered: Cluster) -> None:
    user = reader(administered, "half", [("", "nodes,pods", READS)])
    estate = read_estate(read_as(user))
    assert sum(found.gpus for found in estate.nodes) == 60
    assert "shop/Deployment/ranker" in {str(found.name) for found in estate.workloads}  # by the names of its pods
    text = "\n".join(map(str, estate.unknown))
    assert 'list of deployments.apps: it is forbidden (403 deployments.apps is forbidden: User "system:serv' in text
    assert text.count("allow `get` and `list` of it") == len(ALL_LISTS[1:]) + 3  # some name several kinds


def test_a_token_that_nobody_knows_is_a_sentence(
    server: ApiServer, administered: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = reader(administered, "gone", ALL_LISTS)
    expired = tmp_path / "expired"
    text = json.loads(user.kubeconfig.read_text())
    text["users"][0]["user"]["token"] = "a.b.c"
    expired.write_text(json.dumps(text))
    assert main(["assess", "--kubeconfig", str(expired)]) == 4
    assert "the token is expired or unknown (401 Unauthorized)" in capsys.readouterr().err


def test_a_list_whose_continuation_the_server_forgets_is_read_again(tmp_path: Path) -> None:
    pods = scaled(10_000, PAGE_OBJECTS + 100)
    items = [node("n1", 8, "NVIDIA-L4", "own"), *deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"] * pods)]
    with running_api_server(tmp_path) as server:
        fill(server, items)
        pages: list[int] = []

        def forget(kind: str, count: int, left: int | None) -> None:
            if kind == "pods":
                pages.append(count)
                if len(pages) == 1:
                    # the version of the first page must be an old one
                    Recorder(server.admin).put([heading("v1", "ConfigMap", "shop", "newer")])
                    server.forget_history()

        config = choose_cluster(None, str(server.admin), {})
        objects = read_cluster(config, no_pause, forget)
    assert len(objects.of("Pod")) == pods
    assert pages[:2] == [PAGE_OBJECTS, PAGE_OBJECTS]  # from its beginning
    assert objects.unread == ()
