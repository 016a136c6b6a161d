"""TLS from end to end for server, planner, sidecar and command line; and no secret in a log, a trace or an argument."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from app.store.database.urls import libpq_url
from tests.app.api.test_isolation import filled, routes
from tests.app.http.test_tracing import Spans, collector
from tests.support.forked import ROOT
from tests.support.haproxy import Gateway
from tests.support.patience import patience, until
from tests.support.postgres import DatabaseServer, postgres_of_debian
from tests.support.server import Reply, RunningServer
from tests.support.world import WORLD

pytestmark = pytest.mark.slow

__all__ = ["collector"]

SAN = "subjectAltName=DNS:localhost,IP:127.0.0.1"


class TlsServer(RunningServer):
    """The same server over TLS; its requests trust one certificate."""

    def __init__(self, database_url: str, folder: Path, certificate: Path, environment: Mapping[str, str]) -> None:
        self.trust = ssl.create_default_context(cafile=str(certificate))
        super().__init__(database_url, folder, environment)
        self.url = f"https://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
        timeout_seconds: float | None = None,
        peer: str = "127.0.0.1",
    ) -> Reply:
        sent = dict(headers or {}) | {"Content-Type": "application/json"}
        token = self.admin_token if token is None else token
        sent |= {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, timeout=timeout_seconds or patience(), source_address=(peer, 0), context=self.trust
        )
        try:
            connection.request(method, path, None if body is None else json.dumps(body), sent)
            answer = connection.getresponse()
            text = answer.read().decode()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, text)
        finally:
            connection.close()


class SecureInstallation:
    """Postgres, server, planner and sidecar, which speak TLS; all that they say and all their secrets."""

    def __init__(self, folder: Path, postgres: DatabaseServer, endpoint: str, stack: ExitStack) -> None:
        self.folder = folder
        self.certificate, self.stranger = make_certificate(folder, "own"), make_certificate(folder, "stranger")
        plain = postgres.create()
        turn_tls_on(postgres, self.certificate)
        self.database_url = f"{plain}?sslmode=verify-full&sslrootcert={self.certificate}"
        tls = {
            "GPUWRIGHT_TLS_CERT": str(self.certificate),
            "GPUWRIGHT_TLS_KEY": str(self.certificate.with_suffix(".key")),
            "GPUWRIGHT_DATABASE_DIRECT": "1",
            "GPUWRIGHT_OTLP_ENDPOINT": endpoint,
        }
        self.server = TlsServer(self.database_url, folder, self.certificate, tls)
        stack.callback(self.server.kill)
        self.gateway_token = self.server.token("gateway", gateway="edge-1")
        self.viewer_token = self.server.token("viewer", tenant="shop")
        self.join_token = str(self.server.request("POST", "/api/v1/jointokens", {}).json["token"])
        (folder / "gateway.token").write_text(self.gateway_token)
        (folder / "admin.token").write_text(self.server.admin_token)
        environment = {"DATABASE_URL": self.database_url, "GPUWRIGHT_DATABASE_DIRECT": "1"}
        environment["GPUWRIGHT_OTLP_ENDPOINT"] = endpoint
        self.planner = self._start("planner", environment)
        stack.callback(self._end, self.planner)
        self.gateway = Gateway(folder / "gateway")
        stack.callback(self.gateway.close)
        self.gateway.start_haproxy()
        self.start_sidecar(self.certificate)

    def start_sidecar(self, trusted: Path) -> None:
        words = ("--server", self.server.url, "--server-token-file", str(self.folder / "gateway.token"))
        self.gateway.start_sidecar(*words, "--name", "edge-1", "--server-ca-file", str(trusted), "--loopback")

    def cli(self, *words: str, trusted: Path | None = None) -> subprocess.CompletedProcess[str]:
        config = self.folder / "config.json"
        entry = {
            "server": self.server.url,
            "tokenFile": str(self.folder / "admin.token"),
            "caFile": str(trusted or self.certificate),
        }
        config.write_text(json.dumps({"current": "here", "contexts": {"here": entry}}))
        clean = {name: value for name, value in os.environ.items() if not name.startswith("GPUWRIGHT_")}
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *words],
            env=clean | {"GPUWRIGHT_CONFIG": str(config)}, cwd=ROOT, capture_output=True, text=True, timeout=patience(),
        )  # fmt: skip

    def heard_of_the_gateway(self) -> bool:
        with psycopg.connect(libpq_url(self.database_url)) as connection:
            return connection.execute("SELECT gateway FROM gateway_state").fetchall() == [("edge-1",)]

    def secrets(self) -> dict[str, str]:
        """What must be nowhere: the secret parts, whatever stands around them."""
        password = urlsplit(self.database_url).password
        assert password
        given = {
            "admin": self.server.admin_token,
            "viewer": self.viewer_token,
            "gateway": self.gateway_token,
            "join": self.join_token,
        }
        return {name: token.split("_", 2)[2] for name, token in given.items()} | {"database": password}

    def logs(self) -> dict[str, str]:
        files = (self.server.log_path, self.folder / "planner.log", self.gateway.log_path)
        return {path.name: path.read_text() for path in files}

    def arguments(self) -> dict[str, str]:
        assert self.gateway.sidecar
        pids = {"server": self.server.process.pid, "planner": self.planner.pid, "sidecar": self.gateway.sidecar.pid}
        return {f"arguments of {name}": Path(f"/proc/{pid}/cmdline").read_text() for name, pid in pids.items()}

    def _start(self, verb: str, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{verb}.log").open("ab") as log:
            words = [sys.executable, "-m", "cli.main", verb]
            return subprocess.Popen(words, env=os.environ | dict(environment), cwd=ROOT, stdout=log, stderr=log)

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
        process.wait(patience())


def make_certificate(folder: Path, name: str) -> Path:
    path = folder / f"{name}.pem"
    words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    words += ["-keyout", str(path.with_suffix(".key")), "-out", str(path), "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*words, "-addext", SAN], check=True, capture_output=True)
    return path


def turn_tls_on(postgres: DatabaseServer, certificate: Path) -> None:
    """Gives the server's own user the certificate and its key, and has it speak TLS."""
    data = postgres.server.data_dir / "postgres"
    owner = data.stat()
    for source, name in ((certificate, "server.crt"), (certificate.with_suffix(".key"), "server.key")):
        (data / name).touch(0o600)
        (data / name).write_bytes(source.read_bytes())
        os.chown(data / name, owner.st_uid, owner.st_gid)
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        admin.execute("ALTER SYSTEM SET ssl = on")
        admin.execute("SELECT pg_reload_conf()")

        def on() -> bool:
            return admin.execute("SHOW ssl").fetchone() == ("on",)

        until(on, "Postgres speaks TLS")


def traces(received: Spans) -> str:
    return b"".join(request.SerializeToString() for request in list(received)).decode("latin-1")


@pytest.fixture
def installation(tmp_path: Path, collector: tuple[str, Spans]) -> Iterator[SecureInstallation]:
    with ExitStack() as stack:
        postgres = stack.enter_context(postgres_of_debian(tmp_path / "database"))
        yield SecureInstallation(tmp_path, postgres, collector[0], stack)


def test_case_29_over_tls_no_secret_is_in_a_log_a_trace_an_answer_or_an_argument(
    installation: SecureInstallation, collector: tuple[str, Spans]
) -> None:  # fmt: skip
    server, received = installation.server, collector[1]
    assert server.request("POST", "/api/v1/apply", WORLD).status == 200
    answers = {"get": installation.cli("-v", "get", "services", "-A"), "whoami": installation.cli("-v", "whoami")}
    assert [answer.returncode for answer in answers.values()] == [0, 0], answers
    until(lambda: '"event": "leader"' in installation.logs()["planner.log"], "the planner leads, over TLS")
    until(installation.heard_of_the_gateway, "the sidecar reports, over TLS")
    replies = {}
    for method, route in routes():
        if method != "GET" or route == "/api/v1/watch":
            continue
        path = filled(route, "shop")
        for token in (None, installation.viewer_token, f"gw_{'a' * 12}_{'b' * 43}"):
            replies[f"{route} {token is None}"] = server.request("GET", path, token=token).text
    # Secrets where they do not belong: in a query, a name, a manifest and a refused body.
    for name, secret in installation.secrets().items():
        body = {"token": f"gwj_{'a' * 12}_{secret}", "node": "n"}
        server.request("POST", "/api/v1/join", body, token="", peer="127.0.2.1")
        server.request("GET", f"/api/v1/services?labelSelector=a%3D{secret}")
        server.request("PUT", f"/api/v1/tenants/{name}", {"spec": {"note": f"postgresql://u:{secret}@h/d"}})
    assert server.request("DELETE", "/api/v1/nodes/node-1", token=server.token("operator")).status == 200
    texts = installation.logs() | installation.arguments() | replies
    texts |= {f"cli {name}": answer.stdout + answer.stderr for name, answer in answers.items()}
    until(lambda: "hold_back" in traces(received) or "observe" in traces(received), "the planner's traces have come")
    assert server.stop() == 0  # sends the traces that are left
    assert "/api/v1/services/{tenant}/{name}" in traces(received)
    texts |= {"traces": traces(received), "server's last lines": server.log_path.read_text()}
    hidden = installation.secrets().items()
    assert [(where, name) for where, text in texts.items() for name, secret in hidden if secret in text] == []


def test_case_29_nobody_speaks_to_a_server_whose_certificate_is_not_trusted(installation: SecureInstallation) -> None:
    refused = installation.cli("get", "services", trusted=installation.stranger)
    assert refused.returncode == 4
    assert "certificate" in refused.stderr
    installation.gateway.kill_sidecar()
    installation.start_sidecar(installation.stranger)
    until(lambda: "CERTIFICATE_VERIFY_FAILED" in installation.gateway.log_path.read_text(), "the sidecar refuses it")
    url = installation.database_url.replace(str(installation.certificate), str(installation.stranger))
    with pytest.raises(psycopg.OperationalError, match="certificate verify failed"):
        psycopg.connect(libpq_url(url))
    ran = subprocess.run(
        [sys.executable, "-m", "cli.main", "db", "check"],
        env=os.environ | {"DATABASE_URL": url}, cwd=ROOT, capture_output=True, text=True, timeout=patience(),
    )  # fmt: skip
    assert ran.returncode == 4
    password = urlsplit(url).password
    assert password and password not in ran.stdout + ran.stderr
