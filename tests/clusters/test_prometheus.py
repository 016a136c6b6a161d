"""A Prometheus that is busy, refuses or answers with something else."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from agents.talk.scraping import WANTED
from cli.main import main
from clusters.metrics.asking import MetricsReader
from clusters.metrics.latency_steps import read_quantile
from clusters.metrics.prometheus import PrometheusFailed, PrometheusServer
from clusters.metrics.server_metrics import SERVERS, MetricsOfWorkload

TIME = {"status": "success", "data": {"resultType": "scalar", "result": [1.0, "1700000000"]}}


class AnsweringServer(ThreadingHTTPServer):
    """Answers each request with the next of `answers`: (status, headers, body)."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.tokens: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: AnsweringServer

    def do_GET(self) -> None:
        self.server.tokens.append(self.headers.get("Authorization"))
        status, headers, body = self.server.answers.pop(0)
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (a name of the standard library)
        pass


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    found = AnsweringServer()
    thread = Thread(target=found.serve_forever, args=(0.01,))
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def ask(server: AnsweringServer, pauses: list[float], *answers: tuple[int, dict[str, str], bytes]) -> PrometheusServer:
    server.answers = list(answers)
    return PrometheusServer(f"http://127.0.0.1:{server.server_address[1]}/", "a-token", pauses.append)


def test_a_busy_server_is_asked_again_when_it_says(server: AnsweringServer) -> None:
    pauses: list[float] = []
    good = json.dumps(TIME).encode()
    busy = [(429, {"Retry-After": "7"}, b""), (503, {"Retry-After": "999"}, b""), (503, {}, b"")]
    assert ask(server, pauses, *busy, (200, {}, good)).now() == 1_700_000_000
    assert pauses == [7.0, 60.0, 4.0]
    assert set(server.tokens) == {"Bearer a-token"}


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([(503, {}, b"")] * 4, "it stays busy"),
        ([(422, {}, b'{"error": "query processing would load too many samples"}')], "422 query processing would load"),
        ([(401, {}, b"sign in")], "it answered 401 Unauthorized"),
        ([(200, {}, b"<html>")], "something else than JSON"),
        ([(200, {}, b"[]")], "does not say that it succeeded"),
        ([(200, {}, b"{}")], "does not say that it succeeded"),
        ([(200, {}, b'{"data": {"result": [1, "1"]}}')], "does not say that it succeeded"),
        ([(200, {}, b'{"status": "success", "data": {"result": {}}}')], "has no list of results"),
        ([(200, {}, b'{"status": "success", "data": {"result": [1, "NaN"]}}')], "does not tell its time"),
        ([(200, {}, b'{"status": "success", "data": {"result": [1]}}')], "does not tell its time"),
        ([(200, {}, b"[" * 100_000)], "something else than JSON"),
        ([(200, {"Content-Length": "999"}, b'{"data": ')], "its answer was cut off"),
        ([(200, {}, b'{"status": "success", "data": {"result": [1, %s]}}' % (b"9" * 400))], "does not tell its time"),
        (
            [(503, {"Retry-After": "\xb2"}, b""), (503, {"Retry-After": "9" * 5000}, b""), (422, {}, b"")],
            "answered 422",
        ),
        ([(422, {}, b'{"error": "%s"}' % (b"no" * 10_000))], r"^it answered 422 (no){150}\.\.\.$"),
        ([(500, {}, b'{"error": "%s"}' % (b"no" * 40_000))], "^it answered 500 Internal Server Error$"),
    ],
)
def test_what_does_not_answer_has_a_sentence(
    answers: list[tuple[int, dict[str, str], bytes]], message: str, server: AnsweringServer
) -> None:
    with pytest.raises(PrometheusFailed, match=message):
        ask(server, [], *answers).now()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"warnings": ["receive series from Addr: store-2: unavailable"]}, "only a part of the data: receive series"),
        ({"warnings": ["PromQL info: metric might not be a counter", "store-2 is away"]}, "part of the data: store-2"),
        ({"isPartial": True}, "it has only a part of the data"),
    ],
)
def test_a_part_of_the_data_is_no_answer(more: dict[str, object], message: str, server: AnsweringServer) -> None:
    with pytest.raises(PrometheusFailed, match=message):
        ask(server, [], (200, {}, json.dumps({**TIME, **more}).encode())).now()


def test_remarks_of_promql_on_a_query_leave_nothing_out(server: AnsweringServer) -> None:
    remarks = {"warnings": ["PromQL info: metric might not be a counter"], "infos": ["x"], "isPartial": False}
    assert ask(server, [], (200, {}, json.dumps({**TIME, **remarks}).encode())).now() == 1_700_000_000


def test_a_token_follows_no_redirect(server: AnsweringServer) -> None:
    elsewhere = f"http://bob:secret@localhost:{server.server_address[1]}/x?token=secret"
    with pytest.raises(PrometheusFailed, match=r"^it redirects to http://localhost:[0-9]+$") as refused:
        ask(server, [], (302, {"Location": elsewhere}, b""), (200, {}, json.dumps(TIME).encode())).now()
    assert refused.value.remedy.startswith("give --prometheus the last URL, or, where one signs in there, give")
    assert len(server.tokens) == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, {}, b"sign in"), "it answered 401 Unauthorized; give --prometheus-token-file a token that it takes"),
        ((403, {}, b"denied"), "it answered 403 Forbidden; give --prometheus-token-file a token that it takes"),
        ((404, {}, b""), "it answered 404 Not Found; give --prometheus the URL of Prometheus itself, with the prefix"),
        (
            (200, {"Content-Type": "text/html; charset=utf-8"}, b"<html>Sign in</html>"),
            "it answered with a page for people, as where one signs in; give --prometheus-token-file a token",
        ),
    ],
)
def test_who_gives_another_address_or_no_token_is_told_what_to_give(
    answer: tuple[int, dict[str, str], bytes],
    message: str,
    server: AnsweringServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.answers = [answer]
    objects = tmp_path / "objects.json"
    objects.write_text("[]")
    url = f"http://127.0.0.1:{server.server_address[1]}/graph"
    assert main(["assess", "-f", str(objects), "--prometheus", url]) == 4
    assert f"Prometheus at {url}: {message}" in capsys.readouterr().err


def test_a_port_that_speaks_something_else_has_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            with listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

        thread = Thread(target=greet)
        thread.start()
        with pytest.raises(PrometheusFailed, match="it does not speak HTTP"):
            PrometheusServer(f"http://127.0.0.1:{listener.getsockname()[1]}", "", print).now()
        thread.join()


@pytest.mark.parametrize(
    "url",
    [
        "http://h:abc", "http://h/a b", "http://[::1", "http://", "h:9090", "http://a..b", "file:///etc/passwd",
        "http://bob:hunter2@h", "bob:hunter2@h", "http://h/?token=hunter2", "http://h:99999",
    ],
)  # fmt: skip
def test_a_url_that_cannot_be_asked_is_refused_and_not_repeated(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assess", "--demo", "--prometheus", url]) == 2
    said = capsys.readouterr().err
    assert "--prometheus is not allowed: " in said
    assert "hunter2" not in said


@pytest.mark.parametrize("text", ["", "a\nsecret", "a secret", "sécret"])
def test_a_file_without_a_token_is_named_and_not_repeated(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    words = ["assess", "--demo", "--prometheus-token-file", str(file)]
    assert main([*words, "--prometheus", "http://127.0.0.1:9"]) == 2
    said = capsys.readouterr().err
    assert f"{file} does not hold one token" in said
    assert "cret" not in said
    assert main(words) == 2
    assert "--prometheus-token-file is for --prometheus" in capsys.readouterr().err


def test_series_of_a_wrong_shape_are_left_out(server: AnsweringServer) -> None:
    series: list[object] = [
        {"metric": {"a": "b", "pod": ["p"]}, "value": [1, "2.5"]},
        {"metric": {}, "value": [1, "NaN"]},
        {"value": 3},
        4,
    ]
    body = json.dumps({"status": "success", "data": {"result": series}}).encode()
    assert ask(server, [], (200, {}, body)).at("up", 1.0) == [({"a": "b"}, 2.5)]
    values = [[900, "1"], [1800, "+Inf"], [2700], 5, ["x", "1"]]
    body = json.dumps({"status": "success", "data": {"result": [{"values": values}]}}).encode()
    assert ask(server, [], (200, {}, body)).over("up", [900.0, 1800.0, 2700.0]) == {"": {900.0: 1.0}}


def test_an_answer_without_end_is_left(server: AnsweringServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clusters.metrics.prometheus.MOST_BYTES", 2**20)
    with pytest.raises(PrometheusFailed, match="larger than 1 MB"):
        ask(server, [], (200, {}, b" " * (2**20 + 1))).now()
    monkeypatch.setattr("clusters.metrics.prometheus.REQUEST_SECONDS", 1e-9)
    with pytest.raises(PrometheusFailed, match=r"cannot be reached|took longer than"):
        ask(server, [], (200, {}, b" ")).now()


def test_buckets_that_contradict_each_other_are_read_all(server: AnsweringServer) -> None:
    counts = {"0.1": "10", "1": "0", "5": "0", "+Inf": "10"}
    samples = [{"metric": {"le": le}, "value": [1, count]} for le, count in counts.items()]
    steps = [{"metric": {}, "values": [[900, "0.5"]]}]
    data: list[object] = [{"result": samples}, list(counts), {"result": steps}, {"result": steps}]
    answers: list[tuple[int, dict[str, str], bytes]] = [
        (200, {}, json.dumps({"status": "success", "data": each}).encode()) for each in data
    ]
    reader = MetricsReader(ask(server, [], *answers), [900.0], 900.0, 900.0)
    series = MetricsOfWorkload(SERVERS[0], '{namespace="chat"}', "pod")
    assert read_quantile(reader, series, 99.0, ("seconds",), "900s") == (1000.0,)


def test_a_name_that_is_not_unicode_is_asked_about_all_the_same(server: AnsweringServer) -> None:
    body = json.dumps({"status": "success", "data": {"result": []}}).encode()
    assert ask(server, [], (200, {}, body)).at('up{pod="\ud800"}', 1.0) == []


def test_a_prometheus_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["assess", "--demo", "--prometheus", "http://127.0.0.1:9"]) == 4
    assert "Prometheus at http://127.0.0.1:9: it cannot be reached" in capsys.readouterr().err


def test_names_of_counters_are_those_that_agents_read() -> None:
    for each in SERVERS:
        names = [each.requests, each.input_tokens, each.output_tokens]
        names += [f"{histogram}_bucket" for histogram in (each.latency, each.first_token, *each.token) if histogram]
        assert {name for name in names if name} <= WANTED[each.server]
