"""The real binding over the stand-in for NVML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.devices.nvml.device import NvmlDevice
from tests.support.nvml_stub import NvmlState, load
from tests.support.nvml_stub.state import VARIABLE

HASTY_SECONDS = 1.0  # the deadline of a call where one hangs for good


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlState:
    """Two H100s."""
    load()
    monkeypatch.setenv(VARIABLE, str(tmp_path / "nvml"))
    return NvmlState(tmp_path / "nvml", gpus=2)


@pytest.fixture
def opened(state: NvmlState, tmp_path: Path) -> Iterator[Callable[..., NvmlDevice]]:
    """Opens a device; every one shares the file of originals, as an agent and its successor do."""
    devices: list[NvmlDevice] = []

    def another(deadline_seconds: float = 30.0) -> NvmlDevice:
        originals = tmp_path / "originals.json"
        device = NvmlDevice(originals, deadline_seconds=deadline_seconds, settle_seconds=0.1, reopen_seconds=0.0)
        devices.append(device)
        return device

    yield another
    for number in range(2):
        state.works(number)
    for device in devices:
        device.close()


@pytest.fixture
def device(opened: Callable[..., NvmlDevice]) -> NvmlDevice:
    return opened()


@pytest.fixture
def hasty(opened: Callable[..., NvmlDevice]) -> NvmlDevice:
    return opened(HASTY_SECONDS)
