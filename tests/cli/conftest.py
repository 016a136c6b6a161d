"""A running server for the verbs, and a way to call them as `main` does."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from cli.main import main
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer, running_server

WORLD = """\
apiVersion: gpuwright/v1
kind: GpuType
metadata: {name: v100-16gb}
spec: {memoryGib: 16, smCount: 80, pricePerHour: 1.2, idleW: 40, maxW: 300, clocksMhz: [600, 1530]}
---
apiVersion: gpuwright/v1
kind: Node
metadata: {name: node-1}
spec: {gpuType: v100-16gb, gpus: 4, cpuCores: 48, memoryGib: 256}
---
apiVersion: gpuwright/v1
kind: Model
metadata: {name: resnet50}
spec: {variants: [{name: fp16, accuracy: 0.761, paramsM: 25.6}]}
"""


def service(name: str, tenant: str = "shop", latency_ms: int = 80, labels: str = "{}") -> str:
    """A Service manifest; nobody can serve it, as there is no profile."""
    return f"""\
---
apiVersion: gpuwright/v1
kind: Service
metadata: {{name: {name}, tenant: {tenant}, labels: {labels}}}
spec: {{model: resnet50, slo: {{latencyMs: {latency_ms}, percentile: 98}}, ratePerSecond: 900}}
"""


@dataclass(frozen=True, slots=True)
class Done:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


Run = Callable[..., Done]


@pytest.fixture(scope="module")
def server(postgres: DatabaseServer) -> Iterator[RunningServer]:
    """One server for the tests of a module; each uses names of its own."""
    url = postgres.create()
    with running_server(url) as running:
        yield running
    postgres.drop(url)


@pytest.fixture
def run(
    server: RunningServer, cli_config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """`run("get", "nodes", stdin="...")` as the admin."""
    monkeypatch.setenv("GPUWRIGHT_SERVER", server.url)
    monkeypatch.setenv("GPUWRIGHT_TOKEN", server.admin_token)
    monkeypatch.delenv("GPUWRIGHT_CONTEXT", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")

    def call(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        code = main(words)
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return call


@pytest.fixture
def world(run: Run) -> Run:
    """The same, in a world with a GPU type, a node and a model."""
    assert run("apply", "-f", "-", stdin=WORLD).code == 0
    return run
