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
from clusters.objects import ClusterObjects, namespace_of, objects_of
from clusters.reading import read_estate
from tests.clusters import demo
from tests.clusters.made_up import deployment, heading, pod_spec
from tests.kubernetes.cluster import User
from tests.kubernetes.filling import ALL_LISTS, READS, RecordedCluster
from tests.kubernetes.recorded import Recorder
from tests.support.soak import scaled

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def demo_cluster(recorded_cluster: RecordedCluster) -> Iterator[RecordedCluster]:
    """One that has the demo's objects and nothing else."""
    with recorded_cluster.filled(list(demo.items())):
        yield recorded_cluster


def read_as(user: User) -> ClusterObjects:
    return read_cluster(choose_cluster(None, str(user.kubeconfig), {}), no_pause, lambda *_: None)


def no_pause(seconds: float) -> None:
    raise AssertionError(f"the server asks for {seconds} s")


def figures(estate: Estate) -> tuple[object, ...]:
    return estate.nodes, estate.workloads, estate.pods, estate.unknown


def test_the_estate_is_the_recorded_one_and_a_reader_writes_nothing(
    demo_cluster: RecordedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = demo_cluster.add_reader("reader", ALL_LISTS)
    began = demo_cluster.server.audit.mark()
    assert figures(read_estate(read_as(user))) == figures(read_estate(objects_of(demo.items())))
    prices = tmp_path / "prices.yaml"
    prices.write_text(demo.PRICES)
    assert main(["assess", "--kubeconfig", str(user.kubeconfig), "--prices", str(prices), "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["nanoPerHour"] == 166_070_084_000
    assert demo_cluster.server.audit.writes(user.name, began) == []
    assert set(demo_cluster.server.audit.verbs(user.name, began)) == {"list"}


def test_what_a_user_may_not_list_has_a_sentence_and_the_rest_stands(demo_cluster: RecordedCluster) -> None:
    user = demo_cluster.add_reader("half", [("", "nodes,pods", READS)])
    estate = read_estate(read_as(user))
    assert sum(found.gpus for found in estate.nodes) == 60
    assert "shop/Deployment/ranker" in {str(found.name) for found in estate.workloads}  # by the names of its pods
    text = "\n".join(map(str, estate.unknown))
    assert 'list of deployments.apps: it is forbidden (403 deployments.apps is forbidden: User "system:serv' in text
    assert text.count("allow `get` and `list` of it") == len(ALL_LISTS[1:]) + 3  # some name several kinds


def test_a_token_that_nobody_knows_is_a_sentence(
    demo_cluster: RecordedCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = demo_cluster.add_reader("gone", ALL_LISTS)
    expired = tmp_path / "expired"
    text = json.loads(user.kubeconfig.read_text())
    text["users"][0]["user"]["token"] = "a.b.c"
    expired.write_text(json.dumps(text))
    assert main(["assess", "--kubeconfig", str(expired)]) == 4
    assert "the token is expired or unknown (401 Unauthorized)" in capsys.readouterr().err


def test_a_list_whose_continuation_the_server_forgets_is_read_again(demo_cluster: RecordedCluster) -> None:
    pods, server = scaled(10_000, PAGE_OBJECTS + 100), demo_cluster.server
    items = list(deployment("many", "ranker", pod_spec("r:1", 1), ["n1"] * pods))
    pages: list[int] = []

    def forget(kind: str, count: int, left: int | None) -> None:
        if kind == "pods":
            pages.append(count)
            if len(pages) == 1:
                # the version of the first page must be an old one
                Recorder(server.admin).put([heading("v1", "ConfigMap", "many", "newer")])
                server.forget_history()

    with demo_cluster.filled(items):
        objects = read_cluster(choose_cluster(None, str(server.admin), {}), no_pause, forget)
    assert sum(namespace_of(item) == "many" for item in objects.of("Pod")) == pods
    assert pages[:2] == [PAGE_OBJECTS, PAGE_OBJECTS]  # from its beginning
    assert objects.unread == ()
