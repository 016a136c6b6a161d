"""An ONNX model, run by ONNX Runtime on the GPU if possible, else on the CPU."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agents.host.core_share import threads_of
from agents.programs.serve.backends import Answers, BadInput, RawBody, parse_inputs, predict_batch
from agents.programs.serve.cuda import sm_count

PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")


class OnnxModel:
    """Takes `{"inputs": {"name": [...]}}` of one sample; of a model with one input also `{"inputs": [...]}`.

    A model with one input of a fixed shape and one output of numbers takes raw numbers, too.
    """

    def __init__(self, file: Path) -> None:
        runtime: Any = importlib.import_module("onnxruntime")
        self._numpy: Any = importlib.import_module("numpy")
        there = runtime.get_available_providers()
        self._session = runtime.InferenceSession(
            str(file), _options(runtime), providers=[name for name in PROVIDERS if name in there]
        )
        inputs, outputs = self._session.get_inputs(), self._session.get_outputs()
        _refuse_types("input", inputs, tuple(_DTYPES))
        _refuse_types("output", outputs, (*_DTYPES, TEXT))
        self._inputs = {each.name: (self._numpy.dtype(_DTYPES[each.type]), tuple(each.shape)) for each in inputs}
        self._outputs = [each.name for each in outputs]
        self._answers_numbers = all(each.type != TEXT for each in outputs)

    def predict(self, bodies: list[bytes]) -> Answers:
        return predict_batch(bodies, self._sample, self._compute, _list_numbers, _copy_numbers)

    def _takes_raw(self) -> bool:
        is_fixed = all(isinstance(size, int) for _, shape in self._inputs.values() for size in shape[1:])
        return is_fixed and self._answers_numbers and len(self._inputs) == len(self._outputs) == 1

    def _read_raw(self, body: bytes) -> dict[str, Any]:
        if not self._takes_raw():
            raise BadInput(
                "raw numbers need a model with one input of a fixed shape and one output of numbers; send JSON"
            )
        ((name, zeros),) = self._zeros().items()
        if len(body) != zeros.nbytes:
            raise BadInput(f"{len(body)} bytes are not {zeros.nbytes}, {zeros.dtype} of the shape {list(zeros.shape)}")
        return {name: self._numpy.frombuffer(body, zeros.dtype).reshape(zeros.shape)}

    def _sample(self, body: bytes) -> dict[str, Any]:
        if isinstance(body, RawBody):
            return self._read_raw(body)
        inputs = parse_inputs(body)
        if not isinstance(inputs, dict):
            inputs = {next(iter(self._inputs)): inputs} if len(self._inputs) == 1 else {}
        if inputs.keys() != self._inputs.keys():
            raise BadInput(f"inputs must be {', '.join(self._inputs)}")
        sample = {}
        for name, (dtype, shape) in self._inputs.items():
            try:
                sample[name] = self._numpy.asarray(inputs[name], dtype=dtype)
            except (ValueError, TypeError, OverflowError) as error:
                raise BadInput(f"{name} is not an array of {dtype}") from error
            wanted = shape[1:]
            if sample[name].ndim != len(wanted) or any(
                isinstance(size, int) and size != got for size, got in zip(wanted, sample[name].shape, strict=True)
            ):
                raise BadInput(
                    f"{name} has the shape {sample[name].shape}, not {wanted}: the axis of the batch is left out"
                )
        return sample

    def _compute(self, samples: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Computes samples of one shape in one run, and samples of different shapes one by one."""
        shapes = {tuple(each.shape for each in sample.values()) for sample in samples}
        if len(shapes) > 1:
            return [self._compute([sample])[0] for sample in samples]
        feed = {name: self._numpy.stack([sample[name] for sample in samples]) for name in self._inputs}
        results = self._session.run(self._outputs, feed)
        return [
            {name: result[at] for name, result in zip(self._outputs, results, strict=True)}
            for at in range(len(samples))
        ]

    def warm(self, batch: int) -> None:
        self._compute([self._zeros()] * batch)

    def example(self) -> object:
        zeros = self._zeros()
        if self._takes_raw():
            return RawBody(next(iter(zeros.values())).tobytes())
        return {"inputs": _list_numbers(zeros)}

    def _zeros(self) -> dict[str, Any]:
        """Returns one sample of zeros, with 1 for every axis that the model leaves free."""
        return {
            name: self._numpy.zeros([size if isinstance(size, int) else 1 for size in shape[1:]], dtype)
            for name, (dtype, shape) in self._inputs.items()
        }

    def sm_count(self) -> int | None:
        return sm_count()

    def memory_gib(self) -> float:
        return 0.0  # ONNX Runtime does not report it; the agent asks the device


def _list_numbers(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: array.tolist() for name, array in arrays.items()}


def _copy_numbers(arrays: dict[str, Any]) -> bytes:
    (array,) = arrays.values()
    return bytes(array.tobytes())


def _refuse_types(what: str, ports: Sequence[Any], allowed: tuple[str, ...]) -> None:
    """Refuses a model whose numbers NumPy does not have, such as bfloat16, or that are no tensors."""
    for port in ports:
        if port.type not in allowed:
            raise ValueError(f"the {what} {port.name} is {port.type}; allowed are {', '.join(allowed)}")


def _options(runtime: Any) -> Any:
    """Returns the options on a share of CPU cores: no more threads than can run, and none that spins; else None."""
    threads = threads_of(os.environ)
    if not threads:
        return None
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


TEXT = "tensor(string)"
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")},
}
