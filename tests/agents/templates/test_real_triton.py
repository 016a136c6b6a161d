"""The real Triton on CPU cores, as our template starts it: flags, metrics, router, and what callers reach of it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from random import Random

import pytest

from agents.seams.routes import Route
from agents.talk.copy_client import CopyPlace, TcpCopyClient
from agents.templates import Filled
from agents.templates.filling import Builtin, fill
from agents.templates.reading import read
from tests.agents.gateway.routers import TRITON
from tests.agents.gateway.spellings import spell_path
from tests.support.haproxy import Gateway, running_gateway
from tests.support.needs import need_module
from tests.support.patience import patience, until
from tests.support.ports import free_port
from tests.support.soak import scaled

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
KEY = "only-this-copys-agent-knows"
CONFIG = """\
backend: "python"
max_batch_size: 4
input [{name: "X" data_type: TYPE_FP32 dims: [1]}]
output [{name: "Y" data_type: TYPE_FP32 dims: [1]}]
instance_group [{kind: KIND_CPU}]
"""
MODEL = """\
import triton_python_backend_utils as triton


class TritonPythonModel:
    def execute(self, requests):
        given = [triton.get_input_tensor_by_name(request, "X") for request in requests]
        return [triton.InferenceResponse([triton.Tensor.from_dlpack("Y", values)]) for values in given]
"""
QUESTION = json.dumps({"inputs": [{"name": "X", "shape": [1, 1], "datatype": "FP32", "data": [21]}]})


@dataclass(frozen=True)
class RealTriton:
    """A Triton with one model, another in its repository that nobody loads, and a gateway before it."""

    filled: Filled
    port: int
    gateway: Gateway

    def ask(self, method: str, path: str, body: str = "{}", key: str = "", port: int = 0) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=patience())
        try:
            connection.request(method, path, body, {"X-Gpuwright-Key": key} if key else {})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def call(self, method: str, path: str, body: str = "{}") -> tuple[int, str]:
        return self.ask(method, f"/shop/echo{path}", body, port=self.gateway.port)

    def loaded(self) -> list[str]:
        status, listed = self.ask("POST", "/v2/repository/index", key=KEY)
        assert status == 200
        return [model["name"] for model in json.loads(listed) if model.get("state") == "READY"]


def write_repository(folder: Path) -> None:
    for name in ("echo", "other"):
        (folder / name / "1").mkdir(parents=True)
        (folder / name / "config.pbtxt").write_text(CONFIG)
        (folder / name / "1" / "model.py").write_text(MODEL)


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealTriton]:
    need_module("pytriton", "nvidia-pytriton, as requirements/triton.txt has it, with --no-deps")
    spec = find_spec("pytriton")
    assert spec and spec.submodule_search_locations
    server = Path(spec.submodule_search_locations[0]) / "tritonserver"
    folder = tmp_path_factory.mktemp("triton")
    write_repository(folder / "models")
    shutil.copytree(server / "backends", folder / "backends")
    stub = server / "python_backend_stubs" / f"{sys.version_info.major}.{sys.version_info.minor}"
    program = folder / "tritonserver"
    shutil.copy(server / "bin" / "tritonserver", program)
    shutil.copy(stub / "triton_python_backend_stub", folder / "backends" / "python")
    for file in (program, folder / "backends" / "python" / "triton_python_backend_stub"):
        file.chmod(0o755)  # a wheel keeps no such bit
    port, metrics_port = free_port(), free_port()
    builtin = Builtin("c1", "", port, metrics_port, key=KEY)
    filled = fill(read(models=folder / "models")["triton"], {"model": "echo"}, builtin)
    assert isinstance(filled, Filled)
    argv = (str(program), f"--backend-directory={folder / 'backends'}", *filled.argv[1:])
    libraries = str(server.parents[1] / "nvidia_pytriton.libs")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": libraries,
    }
    with (folder / "log").open("wb") as log, running_gateway(folder / "gateway") as gateway:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        try:

            def is_ready() -> bool:
                assert process.poll() is None, (folder / "log").read_text()[-2000:]
                assert filled.health
                return TcpCopyClient().ask(CopyPlace(port), filled.health).ok

            until(is_ready, "Triton is ready")
            gateway.routes().declare([Route("c1", "shop/echo", f"127.0.0.1:{port}", 1.0, paths=filled.paths)])
            yield RealTriton(replace(filled, argv=argv), port, gateway)
        finally:
            process.terminate()
            process.wait()


def test_triton_answers_callers_and_its_agent(triton: RealTriton) -> None:
    assert triton.filled.warm_up
    assert TcpCopyClient().ask(CopyPlace(triton.port), triton.filled.warm_up).ok
    before = TcpCopyClient().served(CopyPlace(triton.port), triton.filled)
    for path in ("/v2/models/echo/infer", "/v2/models/echo/versions/1/infer"):
        status, answer = triton.call("POST", path, QUESTION)
        assert status == 200, answer
        assert json.loads(answer)["outputs"][0]["data"] == [21.0]
    for path in ("/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/echo", "/v2/models/echo/ready"):
        assert triton.call("GET", path)[0] == 200, path
    after = TcpCopyClient().served(CopyPlace(triton.port), triton.filled)
    assert before and after
    assert after.counters.requests - before.counters.requests == 2


@pytest.mark.timeout(3 * 3600)
def test_no_caller_controls_triton_however_a_path_is_spelled(triton: RealTriton) -> None:
    """Some spellings are ordinary paths, such as /v2/models/NAME, which a model without that name answers with 400."""
    random, count = Random(49), scaled(10_000, 10, 2)
    for control in TRITON.controls:
        path = control.replace("/models/m/", "/models/other/" if "load" in control else "/models/echo/")
        for spelled in (path, f"{path[:-5]}%zz{path[-5:]}", *(spell_path(random, path) for _ in range(count))):
            if spelled.isascii() and spelled.isprintable() and " " not in spelled:
                status, answer = triton.call("POST", spelled)
                assert status in (400, 404, 405), (spelled, status, answer)
    assert triton.loaded() == ["echo"]


def test_what_loads_code_needs_the_key_of_the_copy_also_without_the_gateway(triton: RealTriton) -> None:
    for control in TRITON.controls:
        path = control.replace("/m/", "/echo/")
        for method in ("GET", "POST"):
            assert triton.ask(method, path)[0] in (403, 404, 405), (method, path)
            assert triton.ask(method, path, key="guessed")[0] in (403, 404, 405), (method, path)
    assert triton.ask("POST", "/v2/repository/models/other%zz/load")[0] == 403
    assert triton.loaded() == ["echo"]
    assert triton.ask("POST", "/v2/repository/models/other/load", key=KEY)[0] == 200
    assert sorted(triton.loaded()) == ["echo", "other"], "the key opens it"
