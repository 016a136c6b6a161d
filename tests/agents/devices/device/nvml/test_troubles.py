"""Every NVML code has a meaning, and exceptions are told apart by code."""

from __future__ import annotations

import pynvml
import pytest

from agents.devices.nvml.troubles import trouble
from agents.seams.device import Trouble


@pytest.mark.parametrize(
    ("code", "meaning"),
    [
        (pynvml.NVML_ERROR_LIBRARY_NOT_FOUND, Trouble.NO_DRIVER),
        (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, Trouble.NOT_SUPPORTED),
        (pynvml.NVML_ERROR_NOT_FOUND, Trouble.NOT_SUPPORTED),
        (pynvml.NVML_ERROR_GPU_IS_LOST, Trouble.LOST),
        (pynvml.NVML_ERROR_INVALID_ARGUMENT, Trouble.OUT_OF_RANGE),
        (pynvml.NVML_ERROR_UNKNOWN, Trouble.UNKNOWN),
        (12345, Trouble.UNKNOWN),
    ],
)
def test_a_code_is_a_trouble(code: int, meaning: Trouble) -> None:
    assert trouble(pynvml.NVMLError(code)) is meaning
