"""The doctor's checks of the agent's peers: the root helper, the gateway and the control plane."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agents.control.join import join
from agents.node.state_folder import Credential, StateFolder
from agents.run.doctor import DoctorFinding, Level, neighbours
from agents.run.doctor.gpus import check_settable
from tests.agents.devices.privileged.running import running
from tests.support.server import RunningServer
from tests.support.world import gpu_type


def levels(findings: list[DoctorFinding] | Iterator[DoctorFinding]) -> list[str]:
    return [finding.level.value for finding in findings]


def test_the_root_helper_is_greeted(tmp_path: Path) -> None:
    with running(tmp_path, uid=os.geteuid()) as helper:
        assert levels(check_settable(helper.socket)) == ["ok"]
        assert helper.writes() == []


def test_a_gateway_that_does_not_listen_is_a_failure_and_none_is_not(tmp_path: Path) -> None:
    def level(address: str) -> list[str]:
        return levels(neighbours.gateway(address, tmp_path, ""))

    assert level("") == ["ok"]
    assert level("127.0.0.1") == ["fail"]
    assert level(str(tmp_path / "socket")) == ["fail"]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert level(address) == ["ok"]
        assert level(f"http://{address}") == ["ok"]
    assert level(address) == ["fail"]


def test_a_node_that_has_joined_must_be_one_that_the_gateway_serves(tmp_path: Path) -> None:
    StateFolder(tmp_path).keep_credential(Credential("http://127.0.0.1:9", "node-1", "t"))
    counts = b'{"began": "x", "lines": 0, "lostLines": 0, "refusedLines": 0, "counted": []}'
    with answering(200, {}, counts) as url:
        assert levels(neighbours.gateway(url, tmp_path, "")) == ["ok"]
    with answering(403, {}, b'{"reason": "forbidden", "message": "this token may not"}') as url:
        [finding] = neighbours.gateway(url, tmp_path, "")
        assert finding.level is Level.FAIL
        assert "this token may not" in finding.found
    assert levels(neighbours.gateway(url, tmp_path, "")) == ["fail"]
    [finding] = neighbours.gateway(url, tmp_path, str(tmp_path / "no-token"))
    assert finding.level is Level.FAIL


@pytest.mark.slow
def test_the_control_plane_knows_a_node_that_has_joined(api: RunningServer, tmp_path: Path) -> None:
    api.request("POST", "/api/v1/apply", [gpu_type()])
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    spec = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}
    join(StateFolder(tmp_path), api.url, token, "node-1", spec)
    found = list(neighbours.control_plane(tmp_path))
    assert [finding.check for finding in found] == ["control plane", "clock"]
    assert levels(found) == ["ok", "ok"]
    assert "accepts this node's token" in found[0].found


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (204, {"Date": formatdate(usegmt=True)}, ["ok", "ok"]),
        (204, {"Date": formatdate(time.time() - 3600, usegmt=True)}, ["ok", "warn"]),
        (204, {"Date": "yesterday"}, ["ok", "warn"]),
        (401, {"Date": formatdate(usegmt=True)}, ["fail", "ok"]),
        (503, {}, ["warn", "warn"]),
    ],
)
def test_what_a_control_plane_answers_is_understood(
    tmp_path: Path, status: int, headers: Mapping[str, str], expected: list[str]
) -> None:
    if "GMT" in headers.get("Date", "") and expected[1] == "ok":
        headers = {"Date": formatdate(usegmt=True)}  # of now, and not of when the tests were collected
    with answering(status, headers) as url:
        StateFolder(tmp_path).keep_credential(Credential(url, "node-1", "t"))
        assert levels(neighbours.control_plane(tmp_path)) == expected


def test_a_control_plane_that_is_away_is_a_failure_with_advice(tmp_path: Path) -> None:
    StateFolder(tmp_path).keep_credential(Credential("http://127.0.0.1:9", "node-1", "t"))
    [finding] = neighbours.control_plane(tmp_path)
    assert finding.level is Level.FAIL
    assert "firewall" in finding.advice


@contextmanager
def answering(status: int, headers: Mapping[str, str], body: bytes = b"") -> Iterator[str]:
    """A server that answers everything like this."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
