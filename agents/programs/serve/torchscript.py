"""A TorchScript model, run by PyTorch on the GPU if there is one, else on the CPU."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from agents.programs.serve.backends import Answers, BadInput, RawBody, parse_inputs, predict_batch

FLOAT_BYTES = 4


class TorchModel:
    """Takes one sample of floats in the shape that the server was started with: raw, or as `{"inputs": [...]}`."""

    def __init__(self, file: Path, shape: Sequence[int]) -> None:
        self._torch: Any = importlib.import_module("torch")
        self._device = "cuda" if self._torch.cuda.is_available() else "cpu"
        self._model = self._torch.jit.load(str(file), map_location=self._device).eval()
        self._shape = tuple(shape)
        self._bytes = FLOAT_BYTES * prod(self._shape)

    def predict(self, bodies: list[bytes]) -> Answers:
        return predict_batch(bodies, self._sample, self._compute, lambda row: row.tolist(), _copy_numbers)

    def _sample(self, body: bytes) -> Any:
        if isinstance(body, RawBody):
            if len(body) != self._bytes:
                raise BadInput(f"{len(body)} bytes are not {self._bytes}, float32 of the shape {list(self._shape)}")
            return self._torch.frombuffer(bytearray(body), dtype=self._torch.float32).reshape(self._shape)
        inputs = parse_inputs(body)
        try:
            tensor = self._torch.tensor(inputs, dtype=self._torch.float32)
        except (ValueError, TypeError, RuntimeError, OverflowError) as error:
            raise BadInput("inputs is not an array of numbers") from error
        if tuple(tensor.shape) != self._shape:
            raise BadInput(f"inputs has the shape {list(tensor.shape)}, not {list(self._shape)}")
        return tensor

    def _compute(self, samples: list[Any]) -> Any:
        with self._torch.inference_mode():
            output = self._model(self._torch.stack(samples).to(self._device))
        return (output if isinstance(output, self._torch.Tensor) else output[0]).cpu()

    def warm(self, batch: int) -> None:
        self._compute([self._torch.zeros(self._shape)] * batch)

    def example(self) -> object:
        return RawBody(bytes(self._bytes))

    def sm_count(self) -> int | None:
        if self._device == "cpu":
            return None
        return int(self._torch.cuda.get_device_properties(0).multi_processor_count)

    def memory_gib(self) -> float:
        return 0.0 if self._device == "cpu" else float(self._torch.cuda.memory_reserved()) / 2**30


def _copy_numbers(row: Any) -> bytes:
    """Returns float32 whatever the model computes in: NumPy has no bfloat16, and a caller sees no type."""
    return bytes(row.float().numpy().tobytes())
