"""GPUs that fall off the bus, hang, or lie, and the others, which keep working."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from agents.devices.nvml.device import NvmlDevice
from agents.seams.device import Trouble, XidEvent
from tests.agents.devices.device.checks import trouble_of
from tests.support.nvml_stub import NvmlState, environment, needs_gcc
from tests.support.nvml_stub.state import LOST, uuid_of
from tests.support.patience import patience, until

pytestmark = needs_gcc
FIRST, SECOND = uuid_of(0), uuid_of(1)


def test_a_lost_gpu_is_missing_and_hides_no_other(device: NvmlDevice, state: NvmlState) -> None:
    device.gpus()
    state.lose(0)
    assert trouble_of(lambda: device.read(FIRST)) is Trouble.LOST
    assert [gpu.uuid for gpu in device.gpus()] == [SECOND]
    assert trouble_of(lambda: device.read(FIRST)) is Trouble.LOST
    assert device.read(SECOND).temperature_c == 34


def test_a_gpu_that_came_back_is_found_again(opened: Callable[[], NvmlDevice], state: NvmlState) -> None:
    state.set(0, "absent", 1)
    device = opened()
    assert [gpu.uuid for gpu in device.gpus()] == [SECOND]
    state.drop(0, "absent")
    state.lose(1)
    device.gpus()
    state.give_back(1)
    assert [gpu.uuid for gpu in device.gpus()] == [FIRST, SECOND]
    assert device.read(FIRST).temperature_c == 34


def test_a_gpu_that_hangs_costs_a_deadline_once_and_the_others_nothing(hasty: NvmlDevice, state: NvmlState) -> None:
    hasty.gpus()
    state.hangs(0, "nvmlDeviceGetMemoryInfo")
    assert trouble_of(lambda: hasty.read(FIRST)) is Trouble.TIMEOUT
    threads = set(threading.enumerate())
    for _ in range(200):  # had each waited for its deadline, this would be past the hang guard
        assert trouble_of(lambda: hasty.processes(FIRST)) is Trouble.TIMEOUT
    assert set(threading.enumerate()) <= threads, "none was started for a call that waits for nothing"
    assert hasty.read(SECOND).temperature_c == 34
    assert [gpu.uuid for gpu in hasty.gpus()] == [SECOND]
    state.works(0)
    until(lambda: len(hasty.gpus()) == 2, "the GPU answers again")


def test_a_setting_that_waits_behind_a_hanging_call_is_not_made_late(hasty: NvmlDevice, state: NvmlState) -> None:
    hasty.gpus()
    state.hangs(0, "nvmlDeviceGetMemoryInfo")
    hanging = threading.Thread(target=lambda: trouble_of(lambda: hasty.read(FIRST)))
    hanging.start()
    assert trouble_of(lambda: hasty.lock_clock(FIRST, 1200)) is Trouble.TIMEOUT
    hanging.join()
    state.works(0)
    until(lambda: len(hasty.gpus()) == 2, "the GPU answers again")
    assert state.history() == []


def test_events_name_their_gpu_and_application_errors_are_not_left_out(device: NvmlDevice, state: NvmlState) -> None:
    assert device.events(0) == ()
    state.xid(1, 79)
    state.xid(0, 13)
    assert device.events(60) == (XidEvent(SECOND, 79), XidEvent(FIRST, 13))
    assert device.events(0) == ()


def test_a_lost_gpu_does_not_keep_the_events_of_others_away(device: NvmlDevice, state: NvmlState) -> None:
    device.events(0)
    state.lose(0)
    state.xid(1, 94)
    assert device.events(60) == (XidEvent(SECOND, 94),)


def test_a_gpu_without_events_keeps_no_others_away(device: NvmlDevice, state: NvmlState) -> None:
    state.drop(0, "event_types")
    state.xid(1, 48)
    assert device.events(60) == (XidEvent(SECOND, 48),)


def test_events_arrive_after_nvml_was_opened_again(device: NvmlDevice, state: NvmlState) -> None:
    device.events(0)
    state.lose(0)
    device.gpus()
    state.give_back(0)
    device.gpus()
    state.xid(0, 63)
    assert device.events(60) == (XidEvent(FIRST, 63),)


def test_a_gpu_lost_while_events_are_waited_for_ends_no_wait(device: NvmlDevice, state: NvmlState) -> None:
    xid_events: list[XidEvent] = []
    waiting = threading.Thread(target=lambda: xid_events.extend(device.events(60)))
    waiting.start()
    state.lose(0)
    time.sleep(0.1)
    state.xid(1, 31)
    waiting.join(patience())
    assert xid_events == [XidEvent(SECOND, 31)]


NO_DRIVER = """
from pathlib import Path
from agents.seams.device import DeviceError
from agents.devices.nvml.device import NvmlDevice
try:
    NvmlDevice(Path("originals.json"), deadline_seconds=5.0)
except DeviceError as error:
    print(error.trouble)
"""


@pytest.mark.slow
def test_a_machine_without_a_driver_says_so() -> None:
    done = subprocess.run([sys.executable, "-c", NO_DRIVER], capture_output=True, text=True, timeout=patience())
    assert (done.stdout, done.stderr) == ("no_driver\n", "")


@pytest.mark.slow
@pytest.mark.parametrize("code", [9, 18, LOST, 999])
def test_a_driver_that_does_not_open_is_an_error_of_the_driver(state: NvmlState, tmp_path: Path, code: int) -> None:
    (state.folder / "init_error").write_text(str(code))
    trouble = {9: "no_driver", 18: "no_driver", LOST: "lost", 999: "unknown"}[code]
    done = subprocess.run(
        [sys.executable, "-c", NO_DRIVER],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path.cwd())} | environment(state),
        capture_output=True,
        text=True,
        timeout=patience(),
    )
    assert (done.stdout, done.stderr) == (f"{trouble}\n", "")
