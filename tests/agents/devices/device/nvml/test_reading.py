"""Readings of GPUs through the real binding over the stand-in for NVML."""

from __future__ import annotations

import os

import pytest

from agents.devices.nvml.device import NvmlDevice
from agents.seams.device import Ability, DeviceError, GpuProcess, Trouble
from tests.support.nvml_stub import NvmlState, needs_gcc
from tests.support.nvml_stub.state import UNKNOWN, uuid_of

pytestmark = needs_gcc
FIRST, SECOND = uuid_of(0), uuid_of(1)


def test_a_gpu_is_found_with_all_its_facts(device: NvmlDevice) -> None:
    first = device.gpus()[0]
    assert (first.index, first.uuid, first.name) == (0, FIRST, "NVIDIA H100 80GB HBM3")
    assert (first.pci, first.memory_gib, first.sm_count) == ("00000000:01:00.0", 80.0, 132)
    assert (first.power_min_w, first.power_max_w, first.power_default_w) == (200.0, 700.0, 700.0)
    assert first.abilities == frozenset(Ability) - {Ability.MPS}


def test_clocks_are_those_of_the_highest_memory_clock(device: NvmlDevice) -> None:
    clocks = device.gpus()[0].clocks_mhz
    assert (clocks[0], clocks[-1], len(clocks)) == (345, 1980, 110)


def test_multiprocessors_follow_from_the_cores_where_the_driver_does_not_count_them(
    device: NvmlDevice, state: NvmlState
) -> None:
    state.drop(0, "sm_count")
    state.drop(1, "sm_count")
    state.set(1, "cores", 6912)
    state.set(1, "capability", "8.0")
    assert [gpu.sm_count for gpu in device.gpus()] == [132, 108]


@pytest.mark.parametrize(
    ("key", "ability"),
    [
        ("power_mw", Ability.READ_POWER),
        ("energy_mj", Ability.READ_ENERGY),
        ("utilization", Ability.READ_UTILIZATION),
        ("ecc_uncorrected", Ability.READ_ECC),
        ("clocks", Ability.LOCK_CLOCKS),
        ("power_limit_mw", Ability.CAP_POWER),
        ("compute_mode", Ability.COMPUTE_MODE),
        ("event_types", Ability.EVENTS),
    ],
)
def test_what_a_gpu_does_not_say_is_an_ability_less_and_no_error(
    device: NvmlDevice, state: NvmlState, key: str, ability: Ability
) -> None:
    state.drop(0, key)
    first, second = device.gpus()
    assert second.abilities - first.abilities == {ability}
    assert device.read(FIRST).memory_used_gib == 0.0


def test_a_gpu_before_volta_neither_locks_clocks_nor_limits_clients(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "capability", "6.1")
    assert {Ability.LOCK_CLOCKS, Ability.MPS}.isdisjoint(device.gpus()[0].abilities)


def test_mps_is_an_ability_where_its_program_is_found(
    device: NvmlDevice, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "nvidia-cuda-mps-control"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    assert Ability.MPS in device.gpus()[0].abilities


def test_a_reading_has_its_units(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "memory_reserved_bytes", 2**29)
    state.set(0, "clock_reasons", 0x4 | 0x20 | 0x1)
    reading = device.read(FIRST)
    assert (reading.power_w, reading.energy_mj, reading.memory_used_gib) == (90.5, 123_456_789, 0.5)
    assert (reading.temperature_c, reading.sm_clock_mhz, reading.ecc_uncorrected) == (34, 1980, 0)
    assert reading.clock_reasons == {"power_cap", "sw_thermal"}


def test_every_clock_reason_has_its_name(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "clock_reasons", 0x1FF)
    assert device.read(FIRST).clock_reasons == {"power_cap", "hw_slowdown", "sw_thermal", "hw_thermal", "power_brake"}


def test_an_older_driver_gives_its_reasons_under_the_older_name(device: NvmlDevice, state: NvmlState) -> None:
    state.fails(0, "nvmlDeviceGetCurrentClocksEventReasons", 13)
    state.set(0, "clock_reasons", 0x40)
    assert device.read(FIRST).clock_reasons == {"hw_thermal"}


def test_one_reading_that_fails_takes_no_other_along(device: NvmlDevice, state: NvmlState) -> None:
    device.gpus()
    state.fails(0, "nvmlDeviceGetPowerUsage", UNKNOWN)
    reading = device.read(FIRST)
    assert reading.power_w is None
    assert reading.energy_mj == 123_456_789


def test_processes_under_mps_and_without_are_listed_once_each(device: NvmlDevice, state: NvmlState) -> None:
    state.process(0, os.getpid(), 1.5, under_mps=True)
    state.process(0, os.getppid(), None)
    state.process(0, 4_194_303, 1.0)  # no process has this PID: the driver lists dead ones for a while
    expected = {GpuProcess(os.getpid(), 1.5), GpuProcess(os.getppid(), None)}
    assert set(device.processes(FIRST)) == expected


def test_a_driver_that_knows_one_list_of_processes_only_is_believed(device: NvmlDevice, state: NvmlState) -> None:
    state.process(0, os.getpid(), 1.5)
    state.fails(0, "nvmlDeviceGetMPSComputeRunningProcesses_v3", 13)
    assert device.processes(FIRST) == (GpuProcess(os.getpid(), 1.5),)


def test_processes_that_cannot_be_listed_are_an_error_and_not_none(device: NvmlDevice, state: NvmlState) -> None:
    calls = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3"]
    state.fails(0, calls, UNKNOWN)
    with pytest.raises(DeviceError) as caught:
        device.processes(FIRST)
    assert caught.value.trouble is Trouble.UNKNOWN


def test_the_index_of_a_gpu_is_not_its_name(device: NvmlDevice, state: NvmlState) -> None:
    state.set(0, "energy_mj", 1)
    state.set(1, "energy_mj", 2)
    assert [device.read(gpu.uuid).energy_mj for gpu in device.gpus()] == [1, 2]
    state.lose(0)
    state.set(0, "absent", 1)
    assert [(gpu.index, gpu.uuid) for gpu in device.gpus()] == [(0, SECOND)], "opened anew, the indexes moved up"
    assert device.read(SECOND).energy_mj == 2
    with pytest.raises(DeviceError) as caught:
        device.read(FIRST)
    assert caught.value.trouble is Trouble.LOST
