"""Real models: the calls our adapters make to ONNX Runtime, PyTorch and the CUDA driver, over small stand-ins.

None of the three is installed where the everyday suite runs. The stand-ins offer the calls that the adapters make, as
those libraries document them, and compute `2 * x`.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from http.client import HTTPException
from pathlib import Path

import pytest

from agents.profiling.example import JSON, RAW, parse_example
from agents.programs.serve.backends import RawBody
from agents.programs.serve.onnx import OnnxModel
from tests.agents.programs.serve.running import PATH, Copy, clients, serving
from tests.support.needs import need_no_gpu
from tests.support.nvml_stub import needs_gcc

pytestmark = pytest.mark.slow

ONNX = """
import numpy

class Port:
    def __init__(self, name, type, shape):
        self.name, self.type, self.shape = name, type, shape

def get_available_providers():
    return ["CPUExecutionProvider"]

class InferenceSession:
    def __init__(self, file, options, providers):
        assert options is None
        assert providers == ["CPUExecutionProvider"]
        if open(file).read() == "broken":
            raise RuntimeError("no protobuf")
        self.kind = open(file).read()

    def get_inputs(self):
        return [Port("x", "tensor(float)", ["batch", "n" if self.kind == "free" else 2])]

    def get_outputs(self):
        return [Port("y", self.kind if "(" in self.kind else "tensor(float)", ["batch", 2])]

    def run(self, names, feed):
        assert names == ["y"] and feed["x"].dtype == numpy.float32
        if (feed["x"] == 13).any():
            raise RuntimeError("CUDA error")
        kind = self.kind[7:-1] if "(" in self.kind else "float32"
        return [(feed["x"] * 2).astype(object if kind == "string" else kind)]
"""
TORCH = """
import contextlib, numpy

float32 = numpy.float32
Tensor = numpy.ndarray
numpy_array = numpy.asarray
class cuda:
    is_available = staticmethod(lambda: False)
class Moved(numpy.ndarray):
    def to(self, device):
        assert device == "cpu"
        return self
    def cpu(self):
        return self
    def float(self):
        return self.astype(numpy.float32)
    def numpy(self):
        assert self.dtype == numpy.float32
        return self
class jit:
    @staticmethod
    def load(file, map_location):
        dtype = "float16" if open(file).read() == "half" else "float32"
        class Model:
            def eval(self):
                return self
            def __call__(self, x):
                if (x == 14).any():
                    Model.is_lost = True
                if (x == 13).any() or Model.is_lost:
                    raise RuntimeError("CUDA error")
                return (x * 2).astype(dtype)
            is_lost = False
        return Model()
frombuffer = numpy.frombuffer
tensor = lambda value, dtype: numpy.asarray(value, dtype)
stack = lambda arrays: numpy.stack(arrays).view(Moved)
zeros = lambda shape: numpy.zeros(shape, numpy.float32)
inference_mode = contextlib.nullcontext
"""
DRIVER = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
int cuInit(unsigned flags) { return getenv("BROKEN") ? 999 : 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 7; return ordinal; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    if (attribute != 16 || device != 7) return 1;
    *value = 42;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)0x123456789abc; return device != 7; }
int cuCtxSetCurrent(void *context) { return context != (void *)0x123456789abc; }
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) { *pointer = 1; return bytes > (1ull << 31) ? 2 : 0; }
int cuMemsetD32_v2(uint64_t pointer, unsigned value, size_t words) { return pointer != 1 || value || words != 1 << 20; }
int cuModuleLoadData(void **module, const char *ptx) { *module = (void *)2; return !strstr(ptx, ".entry compute("); }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    *function = (void *)3;
    return module != (void *)2 || strcmp(name, "compute");
}
static int launched;
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned threads_y,
                   unsigned threads_z, unsigned shared, void *stream, void **words, void **extra) {
    launched++;
    return function != (void *)3 || x != 8 || y * z * threads_y * threads_z != 1 || threads != 256 || shared ||
        stream || extra || *(uint64_t *)words[0] != 1 || *(uint32_t *)words[1] != (1 << 20) - 1 ||
        *(uint32_t *)words[2] != 64;
}
int cuCtxSynchronize(void) { return launched % 200; }
"""


@pytest.fixture
def libraries(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "onnxruntime.py").write_text(ONNX)
    (tmp_path / "torch.py").write_text(TORCH)
    (tmp_path / "model.onnx").write_text("x")
    (tmp_path / "broken.onnx").write_text("broken")
    (tmp_path / "model.pt").write_text("x")
    return {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}


def sent(copy: Copy, inputs: object) -> tuple[int, object]:
    answer = copy.infer(json.dumps(inputs).encode() if not isinstance(inputs, bytes) else inputs)
    return answer.status, answer.json


@pytest.mark.parametrize(
    ("words", "outputs"), [(["model.onnx"], {"y": [2.0, 4.0]}), (["model.pt", "--shape", "2"], [2.0, 4.0])]
)
def test_a_model_computes_batches_and_refuses_what_it_cannot_read(
    tmp_path: Path, libraries: dict[str, str], words: list[str], outputs: object
) -> None:
    named = ("--file", str(tmp_path / words[0]), *words[1:])
    batched = ("--batch", "3", "--batch-timeout-ms", "60000", "--max-batch", "8")
    with serving(*named, *batched, environment=libraries) as copy, clients(3) as pool:
        warmed = copy.ask("POST", "/v1/warmup")
        assert warmed.status == 200, copy.log
        three = [
            pool.submit(sent, copy, inputs) for inputs in ({"inputs": [1, 2]}, {"inputs": [3, 4]}, {"inputs": "no"})
        ]
        answers = [each.result() for each in three]
        assert [status for status, _ in answers] == [200, 200, 400]
        assert answers[0][1] == {"outputs": outputs}
        copy.ask("PUT", "/v1/batch", '{"batch": 1}')
        deep = b"[" * 100_000
        for bad in (b"{", b"[]", b"{}", deep, {"inputs": [1]}, {"inputs": [[1, 2]]}, {"inputs": {"z": [1, 2]}}):
            assert sent(copy, bad)[0] == 400, bad
        assert sent(copy, {"inputs": [13, 0]}) == (500, {"error": "the model failed"})
        assert sent(copy, {"inputs": [1, 2]})[0] == 200
        assert copy.served().counters.errors == 1
        copy.ask("POST", "/v1/drain")
        assert copy.exit_code() == 0


@pytest.mark.parametrize("words", [["model.onnx"], ["model.pt", "--shape", "2"]])
def test_raw_numbers_are_answered_with_raw_numbers(tmp_path: Path, libraries: dict[str, str], words: list[str]) -> None:
    with serving("--file", str(tmp_path / words[0]), *words[1:], environment=libraries) as copy:
        example = parse_example(copy.ask("GET", "/v1/example").body)
        assert (example.body, example.kind) == (bytes(8), RAW)
        answer = copy.ask("POST", example.path, struct.pack("<2f", 1, 2), kind=RAW)
        assert answer.status == 200, copy.log
        assert struct.unpack("<2f", answer.body) == (2, 4)
        short = copy.ask("POST", example.path, b"123", kind=RAW)
        assert (short.status, short.json) == (400, {"error": "3 bytes are not 8, float32 of the shape [2]"})


def test_a_raw_answer_is_of_a_type_that_its_caller_knows(tmp_path: Path, libraries: dict[str, str]) -> None:
    """Half precision becomes float32; what is no number is answered in JSON alone."""
    (tmp_path / "model.pt").write_text("half")
    with serving("--file", str(tmp_path / "model.pt"), "--shape", "2", environment=libraries) as copy:
        answer = copy.ask("POST", PATH, struct.pack("<2f", 1, 2), kind=RAW)
        assert struct.unpack("<2f", answer.body) == (2, 4), copy.log
        assert sent(copy, {"inputs": [1, 2]}) == (200, {"outputs": [2.0, 4.0]})
    (tmp_path / "model.onnx").write_text("tensor(string)")
    with serving("--file", str(tmp_path / "model.onnx"), environment=libraries) as copy:
        refused = copy.ask("POST", PATH, bytes(8), kind=RAW)
        assert (refused.status, "one output of numbers" in refused.json["error"]) == (400, True)
        assert sent(copy, {"inputs": [1, 2]}) == (200, {"outputs": {"y": [2.0, 4.0]}})
        assert parse_example(copy.ask("GET", "/v1/example").body).kind == JSON


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("kind", ["int", "uint"])
def test_a_model_answers_in_whole_numbers_of_any_width(
    tmp_path: Path, libraries: dict[str, str], monkeypatch: pytest.MonkeyPatch, kind: str, bits: int
) -> None:
    monkeypatch.syspath_prepend(libraries["PYTHONPATH"].split(":")[0])
    monkeypatch.delitem(sys.modules, "onnxruntime", raising=False)
    (tmp_path / "model.onnx").write_text(f"tensor({kind}{bits})")
    try:
        answers = OnnxModel(tmp_path / "model.onnx").predict([RawBody(struct.pack("<2f", 1, 2))])
    finally:
        sys.modules.pop("onnxruntime", None)
    assert list(answers) == [(2).to_bytes(bits // 8, "little") + (4).to_bytes(bits // 8, "little")]


def test_a_model_of_numbers_that_numpy_lacks_is_not_loaded(tmp_path: Path, libraries: dict[str, str]) -> None:
    (tmp_path / "model.onnx").write_text("tensor(bfloat16)")
    with serving("--file", str(tmp_path / "model.onnx"), environment=libraries, ready=False) as copy:
        assert copy.exit_code() == 1
        assert "cannot load: the output y is tensor(bfloat16); allowed are tensor(float)," in "\n".join(copy.log)


def test_a_model_whose_context_is_lost_ends_its_server(tmp_path: Path, libraries: dict[str, str]) -> None:
    with serving("--file", str(tmp_path / "model.pt"), "--shape", "2", environment=libraries) as copy:
        assert sent(copy, {"inputs": [13, 0]})[0] == 500
        with pytest.raises((OSError, HTTPException)):
            sent(copy, {"inputs": [14, 0]})
        assert copy.exit_code() == 1
        assert "the model fails whatever it is given: CUDA error" in "\n".join(copy.log)


def test_a_model_whose_shape_is_free_takes_json_alone(tmp_path: Path, libraries: dict[str, str]) -> None:
    (tmp_path / "model.onnx").write_text("free")
    with serving("--file", str(tmp_path / "model.onnx"), environment=libraries) as copy:
        assert parse_example(copy.ask("GET", "/v1/example").body).body == b'{"inputs": {"x": [0.0]}}'
        refused = copy.ask("POST", PATH, bytes(8), kind=RAW)
        assert refused.status == 400
        assert "raw numbers need a model with one input" in refused.json["error"]


def test_a_model_that_cannot_be_loaded_ends_the_server_with_its_reason(
    tmp_path: Path, libraries: dict[str, str]
) -> None:
    with serving("--file", str(tmp_path / "broken.onnx"), environment=libraries, ready=False) as copy:
        assert copy.exit_code() == 1
        assert "cannot load: no protobuf" in "\n".join(copy.log)


@needs_gcc
def test_the_stub_can_hold_a_real_context_and_memory(tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    words = ("--device", "cuda", "--memory-gib")
    with serving(*words, "1.5", environment=environment) as copy:
        assert (copy.served().sm_count, copy.served().memory_gib) == (42, 1.5)
    with serving(*words, "4", environment=environment, ready=False) as copy:
        assert copy.exit_code() == 1
        assert "cannot load: CUDA error 2 from cuMemAlloc_v2" in "\n".join(copy.log)
    with serving(*words, "1", environment=environment | {"BROKEN": "1"}, ready=False) as copy:
        assert copy.exit_code() == 1
        assert "CUDA error 999 from cuInit" in "\n".join(copy.log)


@needs_gcc
def test_a_load_of_the_gpu_is_launched_so_often_for_each_request(tmp_path: Path) -> None:
    (tmp_path / "driver.c").write_text(DRIVER)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"], check=True)
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    with serving("--kernel", "launches", "--max-batch", "2", environment=environment) as copy:
        assert copy.ask("POST", "/v1/warmup").status == 200, copy.log
        assert sent(copy, {"inputs": []}) == (200, {"outputs": 1})
        assert copy.served().sm_count == 42
    with serving("--kernel", "poetry", environment=environment, ready=False) as copy:
        assert copy.exit_code() == 1
        assert "there is no kernel 'poetry'; there are arithmetic" in "\n".join(copy.log)


def test_without_a_driver_there_is_no_real_context() -> None:
    need_no_gpu()
    with serving("--device", "cuda", ready=False) as copy:
        assert copy.exit_code() == 1
        assert "no CUDA driver is installed" in "\n".join(copy.log)
