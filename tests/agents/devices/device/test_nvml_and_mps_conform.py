"""NVML and MPS conform through the real binding and a real control program, over stand-ins built with gcc."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.devices.device.conformance import CHECKS, Check, named
from tests.agents.devices.device.nvml_stage import NvmlStage
from tests.agents.devices.device.stage import Made
from tests.support import fake_mps
from tests.support.nvml_stub import load, needs_gcc
from tests.support.nvml_stub.state import VARIABLE

pytestmark = needs_gcc


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Made]:
    load()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nvml"))
    monkeypatch.setenv("PATH", fake_mps.on_path())
    pipes = Path(tempfile.mkdtemp(prefix="mps-"))  # short: a socket's path holds 107 bytes
    stage = NvmlStage(tmp_path, pipes)
    yield stage.made()
    stage.close()
    shutil.rmtree(pipes, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("check", CHECKS, ids=named)
def test_the_real_bindings_conform(check: Check, made: Made) -> None:
    check(made)
