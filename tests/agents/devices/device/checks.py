"""The registry of the conformance suite's checks, and the helpers that checks are written with."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents.seams.device import Device, DeviceError, GpuDevice, Trouble
from tests.agents.devices.device.stage import Made

Check = Callable[[Made], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def named(function: Check) -> str:
    return function.__name__


def trouble_of(call: Callable[[], object]) -> Trouble:
    """The call must end in trouble: in which."""
    with pytest.raises(DeviceError) as caught:
        call()
    return caught.value.trouble


def troubled(call: Callable[[], object], *allowed: Trouble) -> None:
    """The call must end in one of these."""
    assert trouble_of(call) in allowed


def found(device: Device, uuid: str) -> GpuDevice:
    return next(gpu for gpu in device.gpus() if gpu.uuid == uuid)


def middle_clock(device: Device, uuid: str) -> int:
    clocks = found(device, uuid).clocks_mhz
    return clocks[len(clocks) // 2]
