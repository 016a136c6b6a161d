"""A cluster is listed page by page, by GET alone; what fails has a sentence, and the rest is read."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from cli.main import main
from clusters.api_server import PAGE_OBJECTS, read_cluster
from clusters.kubeconfigs import ClusterUnreachable, choose_cluster
from clusters.objects import KINDS, ClusterObjects, objects_of
from clusters.reading import read_estate
from tests.clusters import demo
from tests.clusters.list_server import HANG_UP, ListServer, serving
from tests.clusters.made_up import Item, deployment, node, pod_spec

PODS = "/api/v1/pods"


@pytest.fixture
def server() -> Iterator[ListServer]:
    with serving(demo.items()) as found:
        yield found


class Reading:
    """One reading of a cluster: its objects, the pauses that were asked for, and how far lists said they were."""

    def __init__(self, server: ListServer, folder: Path, token: str = "a-token") -> None:
        self.pauses: list[float] = []
        self.progress: list[tuple[str, int, int | None]] = []
        config = choose_cluster("production", str(server.kubeconfig(folder, token)), {})
        self.objects: ClusterObjects = read_cluster(config, self.pauses.append, self._seen)

    def _seen(self, kind: str, count: int, left: int | None) -> None:
        self.progress.append((kind, count, left))

    @property
    def unread(self) -> list[str]:
        return [str(figure) for figure in self.objects.unread]


def test_the_estate_of_a_server_is_that_of_its_objects_and_nothing_is_written(
    server: ListServer, tmp_path: Path
) -> None:
    found = Reading(server, tmp_path)
    assert read_estate(found.objects) == read_estate(objects_of(demo.items()))
    assert (found.unread, found.pauses) == ([], [])
    assert {method for method, _ in server.requests} == {"GET"}


def test_kinds_that_a_cluster_does_not_have_are_no_fault(tmp_path: Path) -> None:
    with serving([node("n1", 4, "NVIDIA-L4", "own")], custom=False) as server:
        assert Reading(server, tmp_path).unread == []


def test_lists_come_in_pages_and_say_how_far_they_are(tmp_path: Path) -> None:
    pods = deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"] * (PAGE_OBJECTS + 7))
    with serving([node("n1", 8, "NVIDIA-L4", "own"), *pods]) as server:
        found = Reading(server, tmp_path)
    assert len(found.objects.of("Pod")) == PAGE_OBJECTS + 7
    assert [seen for seen in found.progress if seen[0] == "pods"] == [("pods", 500, 7), ("pods", 507, None)]


@pytest.mark.slow
def test_a_continuation_that_expires_is_read_from_its_beginning(tmp_path: Path) -> None:
    pods = deployment("shop", "ranker", pod_spec("r:1", 1), ["n1"] * (PAGE_OBJECTS + 7))
    with serving([node("n1", 8, "NVIDIA-L4", "own"), *pods]) as server:
        server.answers[PODS] = [(0, {}, ""), (410, {}, "The provided continue parameter is too old")]
        found = Reading(server, tmp_path)
        assert len(found.objects.of("Pod")) == PAGE_OBJECTS + 7
        server.answers[PODS] = [(0, {}, ""), (410, {}, "too old")] * 3
        assert "its continuation expired 3 times while it was read" in "\n".join(Reading(server, tmp_path).unread)


class EndlessList(list[Item]):
    """A list of which nothing comes, however long somebody asks."""

    def __len__(self) -> int:
        return 10**9


def test_a_list_that_goes_on_and_adds_nothing_is_left_out(server: ListServer, tmp_path: Path) -> None:
    server.lists[PODS] = EndlessList()
    (line,) = Reading(server, tmp_path).unread
    assert line.startswith("list of pods: the server goes on with its list and adds nothing, so this is unknown: who")


def test_a_busy_server_is_given_the_time_that_it_asks_for(server: ListServer, tmp_path: Path) -> None:
    waits = [(429, {"Retry-After": seconds}, "busy") for seconds in ("7", "3600")]
    server.answers[PODS] = [*waits, (503, {}, "no")]
    found = Reading(server, tmp_path)
    assert found.pauses == [7.0, 60.0, 4.0]
    assert found.unread == []


def test_a_server_that_stays_busy_leaves_one_list_out(server: ListServer, tmp_path: Path) -> None:
    server.answers[PODS] = [(429, {}, "too many requests")] * 6
    (line,) = Reading(server, tmp_path).unread
    assert line.startswith("list of pods: the server did not answer: 429 too many requests, so this is unknown: who")


def test_each_forbidden_list_is_a_sentence_and_the_rest_is_read(server: ListServer, tmp_path: Path) -> None:
    kinds = ("replicasets", "deployments", "statefulsets", "jobs")
    for path in server.lists:
        if path.endswith(kinds):
            server.answers[path] = [(403, {}, f"{path} is forbidden: User 'ines' cannot list it")]
    found = Reading(server, tmp_path)
    assert [line.split(":")[0] for line in found.unread] == [
        "list of replicasets.apps", "list of deployments.apps", "list of statefulsets.apps", "list of jobs.batch",
    ]  # fmt: skip
    assert "it is forbidden (403 /apis/apps/v1/replicasets is forbidden: User 'ines'" in found.unread[0]
    assert all(line.endswith("allow `get` and `list` of it") for line in found.unread)
    estate = read_estate(found.objects)
    assert sum(each.gpus for each in estate.nodes) == 60
    assert [str(figure) for figure in estate.unknown[:4]] == found.unread
    assert {str(each.name) for each in estate.workloads} >= {"shop/Deployment/ranker", "chat/LeaderWorkerSet/llama-70b"}


def test_an_expired_token_in_the_middle_leaves_what_was_read(server: ListServer, tmp_path: Path) -> None:
    path = "/apis/policy/v1/poddisruptionbudgets"
    server.answers[path] = [(401, {}, "Unauthorized")]
    (line,) = Reading(server, tmp_path).unread
    assert "the token is expired or unknown (401 Unauthorized), so this is unknown: how many pods must stay" in line


def test_an_expired_token_is_said_once_with_what_to_do(
    server: ListServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["assess", "--kubeconfig", str(server.kubeconfig(tmp_path, "an-old-token"))])
    captured = capsys.readouterr()
    assert (code, captured.out) == (4, "")
    assert "the token is expired or unknown (401 Unauthorized)" in captured.err
    assert "sign in to the cluster again" in captured.err
    assert captured.err.count("\n") == 1
    assert "an-old-token" not in captured.err


def test_what_answers_with_something_else_is_no_api_server(server: ListServer, tmp_path: Path) -> None:
    for path in server.lists:
        server.answers[path] = [(200, {}, "hello")]
    with pytest.raises(ClusterUnreachable, match="something else than a list"):
        Reading(server, tmp_path)


def test_a_server_that_is_not_there_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving([]) as server:
        file = server.kubeconfig(tmp_path)
    assert main(["assess", "--kubeconfig", str(file)]) == 4
    wanted = f"nothing could be read of {server.url}: list of nodes: the server did not answer: ConnectError"
    assert wanted in capsys.readouterr().err


def test_a_cluster_is_assessed_by_its_context(
    server: ListServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.write_text(json.dumps({"clusters": [], "contexts": [], "users": []}))
    monkeypatch.setenv("KUBECONFIG", f"{other}:{server.kubeconfig(tmp_path)}")
    assert main(["assess", "--context", "production", "-o", "json"]) == 0
    captured = capsys.readouterr()
    assert sum(row["gpus"] for row in json.loads(captured.out)["rows"]) == 60
    assert captured.err == ""


def test_a_page_calls_a_cluster_by_the_context_that_is_current(server: ListServer, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert main(["assess", "--kubeconfig", str(server.kubeconfig(tmp_path)), "--html", str(page)]) == 0
    assert "<title>What the GPUs of production cost</title>" in page.read_text()


def test_a_server_that_speaks_something_else_is_asked_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving([]) as server, socket.create_server(("127.0.0.1", 0)) as listener:
        file = server.kubeconfig(tmp_path, url=f"http://127.0.0.1:{listener.getsockname()[1]}")
        greeted = Thread(target=_greet, args=(listener,))
        greeted.start()
        assert main(["assess", "--kubeconfig", str(file)]) == 4  # a second request would wait for an answer
        greeted.join()
    said = capsys.readouterr().err
    assert "list of nodes: the server did not answer: RemoteProtocolError" in said
    assert said.count("\n") == 1


def _greet(listener: socket.socket) -> None:
    with listener.accept()[0] as connection:
        listener.close()
        connection.recv(4096)
        connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def test_lists_after_one_that_no_server_answers_are_not_asked_for(tmp_path: Path) -> None:
    with serving([node("n1", 4, "NVIDIA-L4", "own")]) as server:
        server.answers[PODS] = [(HANG_UP, {}, "")]
        found = Reading(server, tmp_path)
        assert [path.split("?")[0] for _, path in server.requests] == ["/api/v1/nodes", PODS]
    assert len(found.objects.of("Node")) == 1
    assert len(found.unread) == len(KINDS) - 1
    assert found.pauses == []
