"""Checks that every device must pass: it is found, read, set and restored, and reports its events."""

from __future__ import annotations

import pytest

from agents.seams.device import Ability, Device, DeviceError, Trouble
from tests.agents.devices.device.checks import check, found, middle_clock, troubled
from tests.agents.devices.device.of_mps import served
from tests.agents.devices.device.stage import Made

# Finding devices.


@check
def gpus_are_enumerated_by_index_with_facts_that_make_sense(made: Made) -> None:
    gpus = made.device.gpus()
    assert tuple(gpu.uuid for gpu in gpus) == made.stage.uuids
    assert [gpu.index for gpu in gpus] == [0, 1, 2]
    assert len({gpu.pci for gpu in gpus}) == 3
    for gpu in gpus:
        assert gpu.name
        assert 1 <= gpu.memory_gib <= 1024
        assert 1 <= gpu.sm_count <= 1024
        assert list(gpu.clocks_mhz) == sorted(set(gpu.clocks_mhz))
        assert all(50 <= mhz <= 5000 for mhz in gpu.clocks_mhz)
        assert 10 <= gpu.power_min_w <= gpu.power_default_w <= gpu.power_max_w <= 2000
        assert gpu.abilities >= {Ability.LOCK_CLOCKS, Ability.CAP_POWER, Ability.COMPUTE_MODE, Ability.READ_POWER}


@check
def a_lost_gpu_is_missing_and_hides_no_other(made: Made) -> None:
    first, second, third = made.stage.uuids
    made.stage.lose(first)
    assert made.stage.settled(lambda: {gpu.uuid for gpu in made.device.gpus()} == {second, third})
    for uuid in (second, third):
        assert made.device.read(uuid).memory_used_gib >= 0
        made.device.processes(uuid)
        made.device.cap_power(uuid, found(made.device, uuid).power_min_w)
    troubled(lambda: made.device.read(first), Trouble.LOST)
    troubled(lambda: made.device.processes(first), Trouble.LOST)
    troubled(lambda: made.device.lock_clock(first, None), Trouble.LOST)


@check
def a_uuid_means_its_own_device_whatever_its_index_has_become(made: Made) -> None:
    first, second, third = made.stage.uuids
    addresses = {gpu.uuid: gpu.pci for gpu in made.device.gpus()}
    for uuid, memory_gib in ((first, 1.0), (second, 2.0), (third, 3.0)):
        made.stage.occupy(uuid, memory_gib)
    made.stage.lose(first)
    assert made.stage.settled(lambda: len(made.device.gpus()) == 2)
    assert {gpu.uuid: gpu.pci for gpu in made.device.gpus()} == {second: addresses[second], third: addresses[third]}
    assert made.device.read(second).memory_used_gib == pytest.approx(2.0, abs=0.01)
    assert made.device.read(third).memory_used_gib == pytest.approx(3.0, abs=0.01)
    untouched = made.stage.truth(third)
    made.device.cap_power(second, found(made.device, second).power_min_w)
    assert made.stage.truth(second).cap_w == found(made.device, second).power_min_w
    assert made.stage.truth(third).cap_w == untouched.cap_w


@check
def a_gpu_that_is_back_is_found_again(made: Made) -> None:
    uuid = made.stage.uuids[1]
    made.stage.lose(uuid)
    assert made.stage.settled(lambda: len(made.device.gpus()) == 2)
    made.stage.give_back(uuid)
    assert made.stage.settled(lambda: tuple(gpu.uuid for gpu in made.device.gpus()) == made.stage.uuids)
    made.device.read(uuid)


@check
def a_device_that_is_not_there_is_named_as_such(made: Made) -> None:
    troubled(lambda: made.device.read("GPU-00000000-dead-beef-0000-000000000000"), Trouble.LOST, Trouble.UNKNOWN)


# Reading.


@check
def readings_are_in_their_units_and_ranges(made: Made) -> None:
    uuid = made.stage.uuids[0]
    empty = made.device.read(uuid)
    made.stage.occupy(uuid, 2.0)
    reading = made.device.read(uuid)
    assert reading.memory_used_gib - empty.memory_used_gib == pytest.approx(2.0, abs=0.01)
    assert reading.power_w is not None
    assert 1 <= reading.power_w <= 2000
    assert reading.temperature_c is not None
    assert 0 < reading.temperature_c < 120
    assert reading.utilization_percent is not None
    assert 0 <= reading.utilization_percent <= 100
    assert reading.sm_clock_mhz is not None
    assert 50 <= reading.sm_clock_mhz <= 5000
    assert reading.clock_reasons <= {"hw_slowdown", "sw_thermal", "hw_thermal", "power_brake", "power_cap"}
    assert reading.ecc_uncorrected is None or reading.ecc_uncorrected >= 0


@check
def the_energy_counter_is_in_millijoules(made: Made) -> None:
    uuid = made.stage.uuids[0]
    made.stage.work_for(10.0)
    before = made.stage.truth(uuid).energy_j
    counter = made.device.read(uuid).energy_mj
    after = made.stage.truth(uuid).energy_j
    assert counter is not None
    assert before > 0
    assert before * 1000 - 1 <= counter <= after * 1000 + 1


@check
def the_energy_counter_begins_again_when_the_driver_is_reloaded(made: Made) -> None:
    uuid = made.stage.uuids[0]
    made.stage.work_for(10.0)
    before = made.device.read(uuid).energy_mj
    made.stage.reload_driver()
    after = made.device.read(uuid).energy_mj
    assert before is not None
    assert after is not None
    assert after < before


@check
def what_a_device_cannot_say_is_none_and_no_error(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    lacking = (Ability.READ_POWER, Ability.READ_ENERGY, Ability.READ_ECC)
    for ability in lacking:
        made.stage.unsupported(uuid, ability)
    device, _ = made.stage.reopen()
    reading = device.read(uuid)
    assert (reading.power_w, reading.energy_mj, reading.ecc_uncorrected) == (None, None, None)
    assert reading.temperature_c is not None
    assert not found(device, uuid).abilities & set(lacking)
    assert Ability.READ_POWER in found(device, other).abilities
    assert device.read(other).power_w is not None


@check
def a_device_whose_readings_fail_hides_no_other(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    made.stage.reads_fail(uuid, True)
    troubled(lambda: made.device.read(uuid), Trouble.UNKNOWN, Trouble.LOST)
    assert made.device.read(other).memory_used_gib >= 0
    assert other in {gpu.uuid for gpu in made.device.gpus()}
    made.stage.reads_fail(uuid, False)
    assert made.device.read(uuid).memory_used_gib >= 0


# Processes.


@check
def processes_outside_mps_are_listed_while_they_exist(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    pid = made.stage.occupy(uuid, 1.5)
    listed = {process.pid: process.memory_gib for process in made.device.processes(uuid)}
    assert list(listed) == [pid]
    assert listed[pid] is None or listed[pid] == pytest.approx(1.5, abs=0.01)
    assert made.device.processes(other) == ()
    made.stage.vacate(pid)
    assert made.stage.settled(lambda: made.device.processes(uuid) == ())


@check
def a_process_that_does_not_exist_is_not_listed(made: Made) -> None:
    uuid = made.stage.uuids[0]
    pid = made.stage.stale(uuid)
    assert pid not in {process.pid for process in made.device.processes(uuid)}


@check
def clients_of_mps_are_processes_of_the_device(made: Made) -> None:
    uuid = made.stage.uuids[0]
    client = served(made, uuid)
    assert client.pid in {process.pid for process in made.device.processes(uuid)}
    client.end()
    assert made.stage.settled(lambda: made.device.processes(uuid) == ())


# Setting.


@check
def a_clock_is_locked_and_freed(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    mhz = middle_clock(made.device, uuid)
    applied = made.device.lock_clock(uuid, mhz)
    assert applied.requested == mhz
    assert applied.applied in (None, mhz)
    assert made.stage.truth(uuid).locked_mhz == mhz
    assert made.stage.truth(other).locked_mhz is None
    made.stage.occupy(uuid, 0.5)
    clock = made.device.read(uuid).sm_clock_mhz
    assert clock is None or clock <= mhz
    freed = made.device.lock_clock(uuid, None)
    assert freed.requested is None
    assert made.stage.truth(uuid).locked_mhz is None


@check
def a_power_limit_is_set_and_given_back_to_the_device(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    gpu = found(made.device, uuid)
    watts = round((gpu.power_min_w + gpu.power_default_w) / 2)
    applied = made.device.cap_power(uuid, watts)
    assert applied.requested == watts
    assert applied.applied == pytest.approx(watts)
    assert made.stage.truth(uuid).cap_w == pytest.approx(watts)
    assert made.stage.truth(other).cap_w == pytest.approx(gpu.power_default_w)
    back = made.device.cap_power(uuid, None)
    assert back.requested is None
    assert back.applied in (None, gpu.power_default_w)
    assert made.stage.truth(uuid).cap_w == pytest.approx(gpu.power_default_w)


@check
def exclusive_process_is_switched_on_and_off(made: Made) -> None:
    uuid, other, _ = made.stage.uuids
    applied = made.device.exclusive(uuid, True)
    assert (applied.requested, applied.applied) == (1.0, 1.0)
    assert made.stage.truth(uuid).exclusive
    assert not made.stage.truth(other).exclusive
    applied = made.device.exclusive(uuid, False)
    assert (applied.requested, applied.applied) == (0.0, 0.0)
    assert not made.stage.truth(uuid).exclusive


@check
def a_device_that_a_process_outside_mps_has_to_itself_is_not_taken_over(made: Made) -> None:
    uuid = made.stage.uuids[0]
    stranger = made.stage.occupy(uuid, 1.0)
    made.stage.preset(uuid, cap_w=found(made.device, uuid).power_default_w, exclusive=True)
    writes = made.stage.writes()
    troubled(lambda: made.device.exclusive(uuid, True), Trouble.FOREIGN)
    assert made.stage.writes() == writes
    made.stage.vacate(stranger)
    assert made.device.exclusive(uuid, True).applied == 1.0


@check
def an_exclusive_device_that_nobody_holds_is_taken_whoever_made_it_so_and_left_as_it_was(made: Made) -> None:
    """An agent that has lost its state folder finds its own mode like this."""
    uuid = made.stage.uuids[0]
    made.stage.preset(uuid, cap_w=found(made.device, uuid).power_default_w, exclusive=True)
    assert made.device.exclusive(uuid, True).applied == 1.0
    made.mps.start(uuid)
    device, _ = made.stage.reopen()
    assert device.exclusive(uuid, True).applied == 1.0
    device.restore()
    assert made.stage.truth(uuid).exclusive


@check
def success_without_effect_is_found_out(made: Made) -> None:
    uuid = made.stage.uuids[0]
    gpu = found(made.device, uuid)
    mhz = middle_clock(made.device, uuid)
    made.stage.setters(uuid, "ignored")
    troubled(lambda: made.device.cap_power(uuid, gpu.power_min_w), Trouble.NOT_APPLIED)
    troubled(lambda: made.device.exclusive(uuid, True), Trouble.NOT_APPLIED)
    try:
        assert made.device.lock_clock(uuid, mhz).applied != mhz  # the driver has no getter for it: it may not know
    except DeviceError as error:
        assert error.trouble is Trouble.NOT_APPLIED


@check
def changes_without_permission_are_refused_as_such(made: Made) -> None:
    uuid = made.stage.uuids[0]
    gpu = found(made.device, uuid)
    mhz = middle_clock(made.device, uuid)
    made.stage.setters(uuid, "no_permission")
    before = made.stage.truth(uuid)
    troubled(lambda: made.device.cap_power(uuid, gpu.power_min_w), Trouble.NO_PERMISSION)
    troubled(lambda: made.device.exclusive(uuid, True), Trouble.NO_PERMISSION)
    troubled(lambda: made.device.lock_clock(uuid, mhz), Trouble.NO_PERMISSION)
    after = made.stage.truth(uuid)
    assert (after.locked_mhz, after.cap_w, after.exclusive) == (before.locked_mhz, before.cap_w, before.exclusive)


@check
def what_a_device_cannot_be_set_to_do_is_not_supported(made: Made) -> None:
    uuid = made.stage.uuids[0]
    gpu = found(made.device, uuid)
    mhz = middle_clock(made.device, uuid)
    for ability in (Ability.LOCK_CLOCKS, Ability.CAP_POWER, Ability.COMPUTE_MODE):
        made.stage.unsupported(uuid, ability)
    device, _ = made.stage.reopen()
    troubled(lambda: device.lock_clock(uuid, mhz), Trouble.NOT_SUPPORTED)
    troubled(lambda: device.cap_power(uuid, gpu.power_default_w), Trouble.NOT_SUPPORTED)
    troubled(lambda: device.exclusive(uuid, True), Trouble.NOT_SUPPORTED)


@check
def what_is_out_of_range_is_refused_before_anything_is_written(made: Made) -> None:
    uuid = made.stage.uuids[0]
    gpu = found(made.device, uuid)
    clocks = set(gpu.clocks_mhz)
    between = next(mhz for mhz in range(gpu.clocks_mhz[0], gpu.clocks_mhz[-1]) if mhz not in clocks)
    writes = made.stage.writes()
    for mhz in (-1, 0, gpu.clocks_mhz[0] - 1, between, gpu.clocks_mhz[-1] + 1, 10**9):
        troubled(lambda mhz=mhz: made.device.lock_clock(uuid, mhz), Trouble.OUT_OF_RANGE)  # type: ignore[misc]
    low, high = gpu.power_min_w, gpu.power_max_w
    for watts in (-1.0, 0.0, low - 1, high + 1, 1e308, float("inf"), float("nan")):
        troubled(lambda watts=watts: made.device.cap_power(uuid, watts), Trouble.OUT_OF_RANGE)  # type: ignore[misc]
    assert made.stage.writes() == writes
    truth = made.stage.truth(uuid)
    assert (truth.locked_mhz, truth.cap_w) == (None, gpu.power_default_w)


# Putting back.


def changed(device: Device, uuid: str, mhz: int, exclusive: bool) -> None:
    gpu = found(device, uuid)
    for watts in (gpu.power_max_w, gpu.power_min_w):
        device.cap_power(uuid, watts)
    device.lock_clock(uuid, mhz)
    device.exclusive(uuid, exclusive)


def assert_put_back(made: Made, uuid: str, cap_w: float, exclusive: bool) -> None:
    truth = made.stage.truth(uuid)
    assert truth.locked_mhz is None
    assert truth.cap_w == pytest.approx(cap_w)
    assert truth.exclusive is exclusive


@check
def restoring_puts_back_what_was_set_before_the_first_change(made: Made) -> None:
    first, second, third = made.stage.uuids
    gpu = found(made.device, first)
    before = round(gpu.power_min_w + 10)
    made.stage.preset(first, cap_w=before, exclusive=True)
    mhz = middle_clock(made.device, first)
    changed(made.device, first, mhz, exclusive=False)
    changed(made.device, second, mhz, exclusive=True)
    made.device.restore()
    assert_put_back(made, first, before, exclusive=True)
    assert_put_back(made, second, gpu.power_default_w, exclusive=False)
    assert_put_back(made, third, gpu.power_default_w, exclusive=False)


@check
def restoring_what_was_not_changed_writes_nothing(made: Made) -> None:
    made.stage.preset(made.stage.uuids[0], cap_w=found(made.device, made.stage.uuids[0]).power_min_w, exclusive=True)
    writes = made.stage.writes()
    made.device.restore()
    assert made.stage.writes() == writes


@check
def after_a_crash_the_first_originals_are_put_back(made: Made) -> None:
    uuid = made.stage.uuids[0]
    gpu = found(made.device, uuid)
    before = round(gpu.power_min_w + 10)
    made.stage.preset(uuid, cap_w=before, exclusive=False)
    changed(made.device, uuid, middle_clock(made.device, uuid), exclusive=True)
    device, _ = made.stage.reopen()
    device.cap_power(uuid, gpu.power_max_w)
    device.restore()
    assert_put_back(made, uuid, before, exclusive=False)


@check
def a_lost_gpu_does_not_keep_the_others_from_being_put_back(made: Made) -> None:
    first, second, _ = made.stage.uuids
    mhz = middle_clock(made.device, first)
    changed(made.device, first, mhz, exclusive=True)
    changed(made.device, second, mhz, exclusive=True)
    default = found(made.device, second).power_default_w
    made.stage.lose(first)
    try:
        made.device.restore()
    except DeviceError as error:
        assert error.uuid == first
    assert_put_back(made, second, default, exclusive=False)


# Events.


@check
def every_critical_error_is_told_once(made: Made) -> None:
    first, second, _ = made.stage.uuids
    assert made.device.events(0.0) == ()
    made.stage.xid(first, 48)
    made.stage.xid(second, 63)
    found_events: list[tuple[str, int]] = []

    def all_heard() -> bool:
        found_events.extend((event.uuid, event.xid) for event in made.device.events(0.1))
        return len(found_events) >= 2

    assert made.stage.settled(all_heard)
    assert found_events == [(first, 48), (second, 63)]
    assert made.device.events(0.1) == ()
