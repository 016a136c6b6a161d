"""GPUs in MIG mode: each of their devices is a GPU of its own, with its own UUID, memory and SMs."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from agents.devices.nvml.device import NvmlDevice
from agents.run.doctor.gpus import ask_driver, describe_gpus
from agents.seams.device import Ability, DeviceError, GpuProcess, Trouble, XidEvent
from tests.support.nvml_stub import NvmlState, needs_gcc
from tests.support.nvml_stub.state import part_uuid_of, uuid_of

pytestmark = needs_gcc
FIRST, SECOND = uuid_of(0), uuid_of(1)


def test_each_mig_device_is_a_gpu_with_its_own_memory_and_sms(device: NvmlDevice, state: NvmlState) -> None:
    parts = state.divide(0, 0, 2)
    gpus = device.gpus()
    assert [(gpu.index, gpu.uuid, gpu.part_of) for gpu in gpus] == [
        (0, parts[0], FIRST), (1, parts[1], FIRST), (2, SECOND, ""),
    ]  # fmt: skip
    first = gpus[0]
    assert (first.name, first.memory_gib, first.sm_count) == ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 40.0, 60)
    assert (first.pci, first.power_max_w, first.clocks_mhz) == ("00000000:01:00.0", 0.0, ())
    assert [gpu.place for gpu in gpus] == ["00000000:01:00.0/1.0", "00000000:01:00.0/3.0", "00000000:02:00.0"]
    assert [gpu.serial for gpu in gpus] == ["1651230000000", "1651230000000", "1651230000001"]


def test_a_mig_device_sets_and_measures_nothing_that_it_shares(device: NvmlDevice, state: NvmlState) -> None:
    (part,) = state.divide(0, 0)
    first = device.gpus()[0]
    assert first.abilities == {Ability.EVENTS}
    reading = device.read(part)
    assert (reading.memory_used_gib, reading.power_w, reading.sm_clock_mhz) == (0.0, None, None)
    refused: list[Callable[[], object]] = [
        lambda: device.lock_clock(part, 1980),
        lambda: device.cap_power(part, 300.0),
        lambda: device.exclusive(part, True),
    ]
    for knob in refused:
        with pytest.raises(DeviceError) as caught:
            knob()
        assert caught.value.trouble is Trouble.NOT_SUPPORTED
    assert state.history() == [], "nothing was written to the card"


def test_processes_of_a_mig_device_are_its_own(device: NvmlDevice, state: NvmlState) -> None:
    one, other = state.divide(0, 0, 1)
    state.set(0, f"mig1/pids/{os.getpid()}", f"{2**30} 1")
    assert device.processes(one) == ()
    assert device.processes(other) == (GpuProcess(os.getpid(), 1.0),)


def test_an_error_of_the_gpu_is_one_of_each_of_its_mig_devices(device: NvmlDevice, state: NvmlState) -> None:
    parts = state.divide(0, 0, 1)
    device.gpus()
    state.xid(0, 79)
    assert set(device.events(5.0)) == {XidEvent(part, 79) for part in parts}


def test_gpus_after_a_lost_one_with_mig_devices_keep_their_index(device: NvmlDevice, state: NvmlState) -> None:
    parts = state.divide(0, 0, 1, 2)
    device.gpus()
    state.lose(0)
    assert [(gpu.index, gpu.uuid) for gpu in device.gpus()] == [(3, SECOND)]
    for part in parts:
        with pytest.raises(DeviceError) as caught:
            device.read(part)
        assert caught.value.trouble is Trouble.LOST
    state.give_back(0)
    assert [gpu.uuid for gpu in device.gpus()] == [*parts, SECOND]


def test_a_mode_that_waits_for_a_reset_and_an_undivided_gpu_are_what_they_are_now(
    opened: Callable[..., NvmlDevice], state: NvmlState
) -> None:
    state.set(0, "mig_mode", "0 1")
    state.divide(1)
    assert [gpu.uuid for gpu in opened().gpus()] == [FIRST]
    state.set(0, "mig_mode", "1 0")
    assert opened().gpus() == (), "in MIG mode a GPU runs nothing itself"


def test_the_doctor_names_the_gpu_of_a_mig_device(state: NvmlState) -> None:
    state.divide(0, 0)
    found = [finding.found for finding in describe_gpus(ask_driver(has_mps=True))]
    assert found[0].endswith("2 GPUs")
    assert f"{part_uuid_of(0, 0)}, a MIG device of {FIRST}" in found[1]
    assert len(found) == 3
