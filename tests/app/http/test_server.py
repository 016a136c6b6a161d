"""Starting, refusing to start, TLS, and going down in time."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from app.http.server import check, is_loopback, serve
from app.settings import Settings, SettingsError
from tests.app.http.conftest import Start, request
from tests.support.patience import patience


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -keyout {key} -out {cert}".split(),
        check=True,
        capture_output=True,
    )
    return cert, key


async def nothing(*_: object) -> None: ...


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost"])
def test_loopback_needs_no_tls(host: str) -> None:
    assert is_loopback(host)
    check(Settings(host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org", ""])
def test_beyond_loopback_without_tls_takes_an_explicit_word(host: str) -> None:
    with pytest.raises(SettingsError, match="GPUWRIGHT_ALLOW_PLAINTEXT"):
        serve(nothing, Settings(host=host, port=0))
    check(Settings(host=host, allow_plaintext=True))
    check(Settings(host=host, tls_cert=Path("c"), tls_key=Path("k")))


def test_a_port_in_use_is_named_in_the_refusal() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"port {port}.*in use.*GPUWRIGHT_PORT"):
            serve(nothing, Settings(port=port))


def test_a_certificate_that_will_not_do_is_refused_by_name(tmp_path: Path, pair: tuple[Path, Path]) -> None:
    cert, key = pair
    with pytest.raises(SettingsError, match=r"missing\.pem cannot be read"):
        serve(nothing, Settings(port=0, tls_cert=tmp_path / "missing.pem", tls_key=key))
    with pytest.raises(SettingsError, match="are not a matching pair of PEM files"):
        serve(nothing, Settings(port=0, tls_cert=cert, tls_key=cert))
    locked = tmp_path / "locked.pem"
    subprocess.run(
        ["openssl", "rsa", "-aes128", "-passout", "pass:secret", "-in", str(key), "-out", str(locked)],
        check=True,
        capture_output=True,
    )
    with pytest.raises(SettingsError, match="without a passphrase"):
        serve(nothing, Settings(port=0, tls_cert=cert, tls_key=locked))


def test_tls_answers_on_https_and_to_nothing_else(start: Start, pair: tuple[Path, Path]) -> None:
    server = start(settings={"tls_cert": str(pair[0]), "tls_key": str(pair[1])}, limits={"head_seconds": 0.5})
    context = ssl.create_default_context(cafile=str(pair[0]))
    connection = http.client.HTTPSConnection("localhost", server.port, context=context, timeout=patience())
    connection.sock = context.wrap_socket(
        socket.create_connection(("127.0.0.1", server.port)), server_hostname="localhost"
    )
    connection.request("GET", "/healthz")
    response = connection.getresponse()
    assert response.status == 200
    assert response.read()
    assert connection.sock.version() in ("TLSv1.2", "TLSv1.3")
    connection.request("POST", "/api/v1/apply", body=b"x" * 100)
    assert connection.getresponse().status == 401
    plain = server.client()
    plain.send(request("GET", "/healthz", None))
    assert plain.answer().status == 0
    silent = server.client()
    assert silent.ended()  # a handshake that never comes has the same deadline as a head


def test_a_large_refused_body_over_tls_ends_with_its_answer(start: Start, pair: tuple[Path, Path]) -> None:
    server = start(settings={"tls_cert": str(pair[0]), "tls_key": str(pair[1])})
    context = ssl.create_default_context(cafile=str(pair[0]))
    with socket.create_connection(("127.0.0.1", server.port), timeout=patience()) as bare:
        client = context.wrap_socket(bare, server_hostname="localhost")
        client.sendall(request("POST", "/api/v1/apply", "admin", None, Content_Length="17000000"))
        assert client.recv(65536).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_watches_and_long_polls_and_serve_returns(start: Start, number: int) -> None:
    server = start()
    watch, poll, slow = server.client(), server.client(), server.client()
    watch.send(request("GET", "/api/v1/watch"))
    assert watch.answer().status == 200
    poll.send(request("GET", "/api/v1/nodes/n1/assignment", "node"))
    slow.send(request("GET", "/api/v1/slow?seconds=0.7"))
    server.until_told("gpuwright_requests_in_flight 4.0")
    assert server.stop(number) == 0
    assert watch.ended()
    answer = poll.answer()
    assert answer.status == 503
    assert "retry-after" in answer.headers
    assert slow.answer().status == 200  # what was being worked on is finished
    assert server.said.recv() == "returned"  # so that the caller can stop its database
    assert not [line for line in server.log() if line["level"] in ("error", "critical")]


@pytest.mark.slow
def test_a_client_that_reads_nothing_does_not_hold_up_the_end(start: Start) -> None:
    server = start(limits={"shutdown_seconds": 0.3})
    watch, page, half = server.client(), server.client(), server.client()
    watch.send(request("GET", "/api/v1/watch?kibibytes=50000"))
    page.send(request("GET", "/api/v1/services?kibibytes=50000"))
    half.send(b"POST /api/v1/apply HTTP/1.1\r\nHost: x\r\n")
    server.until_told("gpuwright_requests_in_flight 3.0")
    assert server.stop() == 0


def test_it_can_be_stopped_from_a_thread(start: Start) -> None:
    server = start(stop_after=0.2)
    assert server.ended() == 0


def test_an_application_that_does_not_start_is_said_so(start: Start) -> None:
    async def broken(scope: object, receive: object, send: object) -> None:
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="did not start"):
        serve(broken, Settings(port=0))


def test_the_server_names_neither_itself_nor_its_version(start: Start) -> None:
    answer = start().ask("GET", "/healthz", None)
    assert "server" not in answer.headers
    assert json.dumps(answer.headers).count("uvicorn") == 0
    assert answer.headers["x-content-type-options"] == "nosniff"
