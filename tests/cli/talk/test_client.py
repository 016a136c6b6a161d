"""The client against a real socket: what it sends, when it tries again, what it says when it gives up."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from cli import exits
from cli.exits import Failed
from cli.kinds import object_path
from cli.talk.client import ApiClient
from cli.talk.contexts import ServerContext
from cli.talk.refusals import ServerRefusal
from tests.cli.scripted import Scripted, answer, scripted
from tests.support.patience import patience


class Naps:
    """A sleep that notes how long it would have been."""

    def __init__(self) -> None:
        self.taken: list[float] = []

    def __call__(self, seconds: float) -> None:
        self.taken.append(seconds)


def client_of(server: Scripted, naps: Naps | None = None) -> ApiClient:
    return ApiClient(ServerContext(server.url, token="gw_id_secret"), sleep=naps or Naps())


def test_a_read_carries_the_token_and_no_idempotency_key() -> None:
    with scripted(answer(200, '{"a": 1}')) as server, client_of(server) as client:
        assert client.get("/api/v1/services", {"limit": 2, "cursor": None}) == {"a": 1}
    assert server.requests[0].startswith(b"GET /api/v1/services?limit=2 HTTP/1.1\r\n")
    assert server.header(0, "Authorization") == "Bearer gw_id_secret"
    assert server.header(0, "Idempotency-Key") == ""


def test_a_write_is_tried_again_with_the_same_key_after_503_and_after_a_reset() -> None:
    naps = Naps()
    busy = answer(503, headers=["Retry-After: 3"])
    with scripted(busy, b"", answer(200)) as server, client_of(server, naps) as client:
        client.send("POST", "/api/v1/apply", None, b"{}")
    keys = {server.header(at, "Idempotency-Key") for at in range(3)}
    assert len(keys) == 1 and len(keys.pop()) == 32
    assert naps.taken[0] >= 3


def test_a_question_that_is_asked_too_early_is_refused_at_once_in_the_words_of_the_server() -> None:
    naps = Naps()
    early = answer(503, '{"detail": "loops are compiled; ask again soon"}', headers=["Retry-After: 30"])
    with scripted(early) as server, client_of(server, naps) as client, pytest.raises(Failed) as failed:
        client.get("/api/v1/explain/services/shop/search")
    assert (failed.value.message, failed.value.code) == ("loops are compiled; ask again soon", exits.UNREACHABLE)
    assert naps.taken == []


def test_an_answer_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cli.talk.client.MOST_ANSWER_BYTES", 2**20)
    with scripted(answer(200, "x" * 2**21)) as server, client_of(server) as client:
        with pytest.raises(Failed, match="answered more than 1 MB") as failed:
            client.get("/api/v1/services")
        assert (failed.value.code, len(server.requests)) == (exits.UNREACHABLE, 1)


def test_two_writes_have_two_keys() -> None:
    with scripted(answer(200), answer(200)) as server, client_of(server) as client:
        client.send("DELETE", "/api/v1/nodes/a")
        client.send("DELETE", "/api/v1/nodes/a")
    assert server.header(0, "Idempotency-Key") != server.header(1, "Idempotency-Key")


def test_a_server_that_stays_busy_is_given_up_after_five_tries() -> None:
    naps = Naps()
    with (
        scripted(*[answer(503)] * 9) as server,
        client_of(server, naps) as client,
        pytest.raises(ServerRefusal) as refused,
    ):
        client.get("/api/v1/services")
    assert refused.value.code == exits.UNREACHABLE
    assert len(server.requests) == 5 and len(naps.taken) == 4


def test_a_retry_after_beyond_half_a_minute_is_not_waited_for() -> None:
    naps = Naps()
    with (
        scripted(answer(429, headers=["Retry-After: 3600"])) as server,
        client_of(server, naps) as client,
        pytest.raises(ServerRefusal),
    ):
        client.get("/api/v1/services")
    assert naps.taken == []


def test_a_refusal_is_not_tried_again_and_names_every_fault() -> None:
    problem = {
        "detail": "2 faults",
        "faults": [
            {
                "document": "a.yaml#1 Service shop/x",
                "field": "spec.slo.latencyMs",
                "message": "-1 is wrong",
                "allowed": "a number over 0",
            },
            {
                "document": "a.yaml#2",
                "field": "kind",
                "message": "unknown kind Servce",
                "suggestion": "Service",
            },
        ],
    }
    body = answer(422, json.dumps(problem), media="application/problem+json")
    with scripted(body) as server, client_of(server) as client, pytest.raises(ServerRefusal) as refused:
        client.send("POST", "/api/v1/apply", None, b"{}")
    assert refused.value.code == exits.BAD_INPUT
    assert refused.value.particulars == (
        "a.yaml#1 Service shop/x: spec.slo.latencyMs: -1 is wrong (allowed: a number over 0)",
        "a.yaml#2: kind: unknown kind Servce; did you mean `Service`?",
    )


def test_a_refusal_that_is_its_only_fault_is_said_once() -> None:
    said = "a.yaml: the input is too deep (allowed: at most 64 levels)"
    fault = {"document": "a.yaml", "message": "the input is too deep", "allowed": "at most 64 levels"}
    body = answer(413, json.dumps({"detail": said, "faults": [fault]}), media="application/problem+json")
    with scripted(body) as server, client_of(server) as client, pytest.raises(ServerRefusal) as refused:
        client.send("POST", "/api/v1/apply", None, b"{}")
    assert (str(refused.value), refused.value.particulars) == (said, ())


def test_an_idle_connection_that_the_server_closed_is_no_failure() -> None:
    with scripted(answer(200), b"", answer(200)) as server, client_of(server) as client:
        client.get("/a")
        client.get("/b")
    assert [request.split()[1] for request in server.requests] == [b"/a", b"/b", b"/b"]


def test_without_a_server_the_error_names_the_command_to_start_it() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        with ApiClient(ServerContext(url)) as client, pytest.raises(Failed) as failed:
            client.get("/api/v1/services")
    assert failed.value.message == f"cannot reach {url}: connection refused; start it with: gpuwright up"
    assert failed.value.code == exits.UNREACHABLE


def test_what_does_not_speak_http_is_named_as_such() -> None:
    answers = [b"SSH-2.0-OpenSSH_9\r\n"]
    with scripted(*answers) as server, client_of(server) as client, pytest.raises(Failed, match="speak HTTP"):
        client.get("/")


@pytest.mark.parametrize("server", ["", "localhost:8080", "ftp://x", "http://", "http://x:y", "http://me:pw@x"])
def test_what_is_no_address_is_refused_before_anything_is_sent(server: str) -> None:
    with pytest.raises(Failed, match="is not an address"):
        ApiClient(ServerContext(server))


def test_pages_follow_the_cursor_to_the_end() -> None:
    first = '{"items": [1, 2], "metadata": {"next": "c+/="}}'
    last = '{"items": [3], "metadata": {"next": null}}'
    with scripted(answer(200, first), answer(200, last)) as server, client_of(server) as client:
        pages = list(client.pages("/api/v1/services", {"tenant": ""}))
    assert [page["items"] for page in pages] == [[1, 2], [3]]
    assert server.requests[1].split()[1] == b"/api/v1/services?limit=500&cursor=c%2B%2F%3D"


def test_a_name_cannot_leave_its_place_in_the_path() -> None:
    assert object_path("services", "shop", "../x?y#z") == "/api/v1/services/shop/..%2Fx%3Fy%23z"


def test_verbose_shows_requests_and_never_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    with scripted(answer(200)) as server:
        client = ApiClient(ServerContext(server.url, token="gw_id_canary", verbose=True))
        client.send("POST", "/api/v1/tokens", None, b'{"x": "gw_id_canary"}')
        client.close()
    shown = capsys.readouterr().err
    assert "> POST" in shown and "< 200" in shown and "canary" not in shown


def test_a_connection_in_a_traceback_does_not_show_its_token() -> None:
    assert "canary" not in repr(ServerContext("http://x", token="canary"))


def test_a_server_that_is_not_ours_is_named_as_such() -> None:
    moved = answer(302, "", ["Location: https://x/login"], media="text/html")
    with (
        scripted(moved) as server,
        client_of(server) as client,
        pytest.raises(Failed, match="points to https://x/login"),
    ):
        client.get("/")
    page = answer(200, "<html>", media="text/html")
    with scripted(page) as server, client_of(server) as client, pytest.raises(Failed, match="without JSON"):
        client.get("/")
    lost = answer(404, "<html>", media="text/html")
    with scripted(lost) as server, client_of(server) as client, pytest.raises(Failed, match="a gpuwright server"):
        client.get("/")


@pytest.mark.needs("openssl", "openssl")
def test_a_certificate_is_trusted_by_its_ca_only_and_for_its_name(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    command = ["openssl", *words.split(), "-addext", "subjectAltName=DNS:localhost"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=patience())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    with scripted(answer(200, '{"a": 1}'), tls=tls) as server:
        with ApiClient(ServerContext(server.url, ca_file=str(certificate))) as client:
            assert client.get("/") == {"a": 1}
        with ApiClient(ServerContext(server.url)) as client, pytest.raises(Failed, match="is not trusted"):
            client.get("/")
        by_number = server.url.replace("localhost", "127.0.0.1")
        with (
            ApiClient(ServerContext(by_number, ca_file=str(certificate))) as client,
            pytest.raises(Failed, match="not trusted"),
        ):
            client.get("/")
    assert len(server.requests) == 1  # the token went nowhere else


def test_a_server_that_says_nothing_is_given_up_after_the_request_timeout() -> None:
    naps = Naps()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        client = ApiClient(ServerContext(url, request_seconds=0.05), sleep=naps)
        with pytest.raises(Failed, match=r"no answer within 0\.05 s") as failed:
            client.get("/api/v1/services")
    assert failed.value.code == exits.UNREACHABLE and len(naps.taken) == 4


def test_no_token_goes_to_another_machine_in_the_clear() -> None:
    for server in ("http://far.example", "http://127.0.0.1.evil.example:8080"):
        ApiClient(ServerContext(server)).close()
        with pytest.raises(Failed, match="is not encrypted"):
            ApiClient(ServerContext(server, token="gw_id_secret"))
