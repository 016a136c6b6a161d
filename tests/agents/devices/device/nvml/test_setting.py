"""Read, write, read back: which writes reach the driver, and which error follows when they have no effect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.devices.nvml.device import NvmlDevice
from agents.devices.nvml.setting import holds
from agents.devices.nvml.writer import EXCLUSIVE_PROCESS_MODE
from agents.seams.device import Applied, DeviceError, Trouble
from tests.agents.devices.device.checks import trouble_of
from tests.support.nvml_stub import NvmlState, needs_gcc
from tests.support.nvml_stub.state import LOST, NO_PERMISSION, NOT_SUPPORTED, uuid_of
from tests.support.patience import until

pytestmark = needs_gcc
FIRST, SECOND = uuid_of(0), uuid_of(1)


@pytest.mark.slow
def test_a_locked_clock_is_read_back(device: NvmlDevice, state: NvmlState) -> None:
    assert device.lock_clock(FIRST, 1200) == Applied(1200, 1200)
    assert device.lock_clock(FIRST, None) == Applied(None, None)
    assert state.history() == [(0, "SetGpuLockedClocks", 1200), (0, "ResetGpuLockedClocks", 0)]
    assert device.read(FIRST).sm_clock_mhz == 1980


def test_nothing_is_written_whose_original_cannot_be_kept(device: NvmlDevice, state: NvmlState, tmp_path: Path) -> None:
    (tmp_path / "originals.json.new").mkdir()
    changes: tuple[Callable[[], object], ...] = (
        lambda: device.lock_clock(FIRST, 1200),
        lambda: device.cap_power(FIRST, 400.0),
        lambda: device.exclusive(FIRST, True),
    )
    for change in changes * 2:
        with pytest.raises(DeviceError, match="nothing was changed"):
            change()
    assert state.history() == []


def test_a_clock_that_is_none_of_the_gpus_is_never_written(device: NvmlDevice, state: NvmlState) -> None:
    assert trouble_of(lambda: device.lock_clock(FIRST, 1201)) is Trouble.OUT_OF_RANGE
    assert state.history() == []


def test_a_throttled_gpu_is_slower_than_its_lock_and_that_is_no_failure(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "throttled_mhz", 900)
    state.set(0, "clock_reasons", 0x4)
    assert device.lock_clock(FIRST, 1200) == Applied(1200, 900)


def test_a_lock_without_effect_is_reported(device: NvmlDevice, state: NvmlState) -> None:
    state.ignores(0, "nvmlDeviceSetGpuLockedClocks")
    assert trouble_of(lambda: device.lock_clock(FIRST, 1200)) is Trouble.NOT_APPLIED


@pytest.mark.parametrize(
    ("mhz", "read_mhz", "reasons", "held"),
    [
        (1200, 1200, 0, True),
        (1200, 1185, 0, True),  # one step off
        (1200, 1980, 0, False),
        (1200, 1980, 0x4, False),  # faster than locked, throttled or not
        (1200, 900, 0, False),
        (1200, 900, 0x8, True),
        (1200, 345, 0x1, True),  # idle
        (1200, 345, 0x2, False),
    ],
)
def test_a_clock_speaks_for_its_lock_or_against_it(mhz: int, read_mhz: int, reasons: int, held: bool) -> None:
    assert holds(mhz, read_mhz, reasons) is held


def test_a_power_cap_is_enforced_when_read_back(device: NvmlDevice, state: NvmlState) -> None:
    assert device.cap_power(FIRST, 350.0) == Applied(350.0, 350.0)
    assert device.cap_power(FIRST, None) == Applied(None, 700.0)
    assert state.history() == [
        (0, "SetPowerManagementLimit", 350_000),
        (0, "SetPowerManagementLimit", 700_000),
    ]


def test_what_is_set_already_is_not_written(device: NvmlDevice, state: NvmlState) -> None:
    assert device.cap_power(FIRST, 700.0) == Applied(700.0, 700.0)
    assert device.exclusive(FIRST, False) == Applied(0.0, 0.0)
    assert state.history() == []


@pytest.mark.parametrize("watts", [199.0, 701.0, -1.0, float("nan"), float("inf")])
def test_a_cap_outside_the_constraints_is_never_written(device: NvmlDevice, state: NvmlState, watts: float) -> None:
    assert trouble_of(lambda: device.cap_power(FIRST, watts)) is Trouble.OUT_OF_RANGE
    assert state.history() == []


def test_a_lower_limit_that_the_board_enforces_is_what_is_applied(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "enforced_limit_mw", 250_000)
    assert device.cap_power(FIRST, 350.0) == Applied(350.0, 250.0)


@pytest.mark.parametrize("enforced_mw", [None, 700_000])
def test_a_cap_without_effect_is_reported(device: NvmlDevice, state: NvmlState, enforced_mw: int | None) -> None:
    if enforced_mw is None:
        state.ignores(0, "nvmlDeviceSetPowerManagementLimit")
    else:
        state.set(0, "enforced_limit_mw", enforced_mw)
    assert trouble_of(lambda: device.cap_power(FIRST, 350.0)) is Trouble.NOT_APPLIED


def test_the_compute_mode_is_set_and_read_back(device: NvmlDevice, state: NvmlState) -> None:
    assert device.exclusive(FIRST, True) == Applied(1.0, 1.0)
    assert device.exclusive(FIRST, False) == Applied(0.0, 0.0)
    assert state.history() == [(0, "SetComputeMode", 3), (0, "SetComputeMode", 0)]
    state.ignores(0, "nvmlDeviceSetComputeMode")
    assert trouble_of(lambda: device.exclusive(FIRST, True)) is Trouble.NOT_APPLIED


def test_an_exclusive_device_whose_processes_are_not_listed_is_of_others_unless_it_was_made_so_here(
    device: NvmlDevice, state: NvmlState
) -> None:
    for number in (0, 1):
        state.fails(number, "nvmlDeviceGetComputeRunningProcesses_v3", NOT_SUPPORTED)
    state.set(1, "compute_mode", EXCLUSIVE_PROCESS_MODE)
    for _ in range(2):
        assert device.exclusive(FIRST, True) == Applied(1.0, 1.0)
    assert trouble_of(lambda: device.exclusive(SECOND, True)) is Trouble.FOREIGN


def test_without_root_nothing_is_set_and_that_is_reported(device: NvmlDevice, state: NvmlState) -> None:
    setters = [
        "nvmlDeviceSetGpuLockedClocks",
        "nvmlDeviceResetGpuLockedClocks",
        "nvmlDeviceSetPowerManagementLimit",
        "nvmlDeviceSetComputeMode",
    ]
    state.fails(0, setters, NO_PERMISSION)
    assert trouble_of(lambda: device.lock_clock(FIRST, 1200)) is Trouble.NO_PERMISSION
    assert trouble_of(lambda: device.cap_power(FIRST, 350.0)) is Trouble.NO_PERMISSION
    assert trouble_of(lambda: device.exclusive(FIRST, True)) is Trouble.NO_PERMISSION


def test_a_gpu_that_cannot_be_set_says_so(device: NvmlDevice, state: NvmlState) -> None:
    for key in ("clocks", "power_limit_mw", "compute_mode"):
        state.drop(0, key)
    assert trouble_of(lambda: device.lock_clock(FIRST, 1200)) is Trouble.NOT_SUPPORTED
    assert trouble_of(lambda: device.lock_clock(FIRST, None)) is Trouble.NOT_SUPPORTED
    assert trouble_of(lambda: device.cap_power(FIRST, 350.0)) is Trouble.NOT_SUPPORTED
    assert trouble_of(lambda: device.exclusive(FIRST, True)) is Trouble.NOT_SUPPORTED


def test_restoring_puts_back_what_was_there_before_the_first_change(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "power_limit_mw", 500_000)
    state.set(0, "compute_mode", 2)
    for watts in (350.0, 300.0):
        device.cap_power(FIRST, watts)
    device.exclusive(FIRST, True)
    device.lock_clock(FIRST, 1200)
    device.restore()
    assert (state.get(0, "power_limit_mw"), state.get(0, "compute_mode")) == ("500000", "2")
    assert state.get(0, "locked_max_mhz") is None
    written = len(state.history())
    device.restore()
    assert len(state.history()) == written, "what is restored is forgotten"


def test_after_a_crash_the_next_agent_puts_back_what_the_first_one_found(
    opened: Callable[[], NvmlDevice], state: NvmlState
) -> None:
    first = opened()
    state.set(1, "power_limit_mw", 500_000)
    first.cap_power(SECOND, 350.0)
    first.lock_clock(SECOND, 1200)
    second = opened()
    second.cap_power(SECOND, 300.0)
    second.restore()
    assert state.get(1, "power_limit_mw") == "500000"
    assert state.get(1, "locked_max_mhz") is None
    assert {gpu for gpu, _, _ in state.history()} == {1}, "a GPU that was never changed is left alone"


def test_a_gpu_that_cannot_be_restored_hinders_no_other_and_is_tried_again(
    device: NvmlDevice, state: NvmlState
) -> None:
    for uuid in (FIRST, SECOND):
        device.cap_power(uuid, 350.0)
    state.lose(0)
    assert trouble_of(device.restore) is Trouble.LOST
    assert state.get(1, "power_limit_mw") == "700000"
    state.give_back(0)
    device.restore()
    assert state.get(0, "power_limit_mw") == "700000"


def test_a_gpu_lost_between_write_and_reading_back_is_not_called_set(device: NvmlDevice, state: NvmlState) -> None:
    state.fails(0, "nvmlDeviceGetEnforcedPowerLimit", LOST)
    assert trouble_of(lambda: device.cap_power(FIRST, 350.0)) is Trouble.LOST


def test_a_change_that_comes_late_is_put_back_all_the_same(hasty: NvmlDevice, state: NvmlState) -> None:
    state.hangs(0, "nvmlDeviceSetGpuLockedClocks")
    assert trouble_of(lambda: hasty.lock_clock(FIRST, 1200)) is Trouble.TIMEOUT
    state.works(0)
    until(lambda: state.get(0, "locked_max_mhz") == "1200", "the call comes back, and has locked the clock")
    hasty.restore()
    assert state.get(0, "locked_max_mhz") is None
