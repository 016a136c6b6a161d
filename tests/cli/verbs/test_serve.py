"""`gpuwright serve`: refuses what would not work, in one line that says what to do."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.support.forked import gpuwright
from tests.support.server import RunningServer


def test_without_a_database_it_says_what_to_do() -> None:
    ran = serve()
    assert ran.returncode == 2
    assert "DATABASE_URL is not set" in ran.stderr


def test_an_unmigrated_database_is_refused_with_the_command(empty_database_url: str) -> None:
    ran = serve(DATABASE_URL=empty_database_url)
    assert ran.returncode == 3
    assert "run: gpuwright db migrate" in last_line(ran)


def test_an_unreachable_database_is_reported_without_the_password() -> None:
    ran = serve(DATABASE_URL="postgresql://gpuwright:canary-password@127.0.0.1:1/gpuwright")
    assert ran.returncode == 4
    assert "cannot be reached" in last_line(ran)
    assert "canary-password" not in ran.stderr + ran.stdout


def test_a_url_of_something_else_is_refused() -> None:
    ran = serve(DATABASE_URL="mysql://localhost/x")
    assert ran.returncode == 2
    assert "postgresql://" in last_line(ran)


def test_beyond_loopback_without_tls_is_refused(database_url: str) -> None:
    ran = serve("--host", "0.0.0.0", DATABASE_URL=database_url)
    assert ran.returncode == 2
    assert "TLS" in last_line(ran)


@pytest.mark.slow
def test_agents_of_a_cluster_need_one_and_an_account(database_url: str, tmp_path: Path) -> None:
    given = {"DATABASE_URL": database_url, "KUBECONFIG": str(tmp_path / "none")}
    ran = serve(**given, GPUWRIGHT_KUBERNETES_AGENTS="nodes/agent")
    assert ran.returncode == 3
    assert "GPUWRIGHT_KUBERNETES_AGENTS is set, but there is no kubeconfig" in last_line(ran)
    ran = serve(**given, GPUWRIGHT_KUBERNETES_AGENTS="agent")
    assert ran.returncode == 2
    assert "must be NAMESPACE/ACCOUNT" in last_line(ran)


@pytest.mark.parametrize("port", ["70000", "-1", "http"])
def test_a_port_that_is_none_is_refused(port: str) -> None:
    ran = serve("--port", port)
    assert ran.returncode == 2
    assert "not a port" in ran.stderr


@pytest.mark.slow
def test_it_ends_with_0_when_asked_to(api: RunningServer) -> None:
    assert api.stop() == 0


@pytest.mark.slow
def test_it_comes_back_on_the_same_database_after_sigkill(api: RunningServer) -> None:
    assert api.request("PUT", "/api/v1/tenants/shop", {"spec": {}}).status == 201
    api.kill()
    api.restart()
    assert api.request("GET", "/api/v1/tenants/shop").status == 200


def last_line(ran: subprocess.CompletedProcess[str]) -> str:
    return ran.stderr.splitlines()[-1]


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name != "DATABASE_URL"} | environment
    return gpuwright("serve", *arguments, environment=variables)
