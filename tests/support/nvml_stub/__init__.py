"""A stand-in for libnvidia-ml.so.1, so that the real binding runs without a GPU; its state is a folder.

In this process: `load()`, and GPUWRIGHT_NVML_STUB in the environment. The binding asks for the library by its name,
and the loader answers with what it has loaded under that name already. In a child process: `environment(...)`.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.nvml_stub.state import VARIABLE, NvmlState

__all__ = ["NvmlState", "environment", "library", "load", "needs_gcc"]

needs_gcc = pytest.mark.needs("gcc", "gcc")  # it builds the stand-ins for NVIDIA's libraries


@functools.cache
def library() -> Path:
    """Built once a run."""
    folder = tempfile.mkdtemp(prefix="gpuwright-nvml-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    built = Path(folder) / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    flags = ["-O1", "-shared", "-fPIC", f"-Wl,-soname,{built.name}"]
    subprocess.run(["gcc", *flags, "-o", str(built), str(source)], check=True)
    return built


@functools.cache
def load() -> None:
    """Before the binding looks for NVML for the first time."""
    ctypes.CDLL(str(library()), mode=ctypes.RTLD_GLOBAL)


def environment(state: NvmlState) -> dict[str, str]:
    """What a child process needs to find the stand-in and this state."""
    path = os.environ.get("LD_LIBRARY_PATH")
    folders = str(library().parent) + (f":{path}" if path else "")
    return {"LD_LIBRARY_PATH": folders, VARIABLE: str(state.folder)}
