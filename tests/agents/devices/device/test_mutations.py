"""Deliberate bugs in the simulated device, one at a time: the conformance suite finds each of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pytest

from agents.devices.simulated.context import SimulatedContext
from agents.devices.simulated.daemon import SimulatedDaemon
from agents.devices.simulated.device import SimulatedDevice
from agents.devices.simulated.gpu import SimulatedGpu
from agents.devices.simulated.machine import Machine, SimulatedSlot
from agents.devices.simulated.mps import SimulatedMps
from agents.seams.device import Ability, Applied, DeviceError, GpuDevice, GpuReading, MpsState, XidEvent
from tests.agents.devices.device.conformance import CHECKS, named
from tests.agents.devices.device.in_process import KINDS, InProcess


class LosesAll(SimulatedDevice):
    """One lost GPU, and none can be listed."""

    def gpus(self) -> tuple[GpuDevice, ...]:
        for slot in self._machine.slots.values():
            self._slot(slot.gpu.uuid)
        return super().gpus()


class ForgetsPower(SimulatedDevice):
    """Restores all settings but the power limit."""

    def restore(self) -> None:
        for slot in self._machine.slots.values():
            if slot.original is not None:
                slot.original = replace(slot.original, cap_w=slot.gpu.cap_w)
        super().restore()


class TakesAnyCap(SimulatedDevice):
    """A limit out of range is moved into it, and called a success."""

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        kind = self._machine.slots[uuid].gpu.kind
        if watts is not None and not math.isnan(watts):
            watts = min(kind.power_max_w, max(kind.power_min_w, watts))
        return super().cap_power(uuid, watts)


class TellsTwice(SimulatedDevice):
    """Every event is delivered once more."""

    _before: tuple[XidEvent, ...] = ()

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        newest, self._before = self._before, super().events(seconds)
        return newest + self._before


class ListsTheDead(SimulatedDevice):
    """Every process that the driver lists is believed to run."""

    def _exists(self, slot: SimulatedSlot, pid: int) -> bool:
        return True


class SaysJoules(SimulatedDevice):
    """Energy in J."""

    def read(self, uuid: str) -> GpuReading:
        reading = super().read(uuid)
        return replace(reading, energy_mj=None if reading.energy_mj is None else reading.energy_mj // 1000)


class AddressesByIndex(SimulatedDevice):
    """The index of the first enumeration is used for ever: after a loss it is another device's."""

    def _slot(self, uuid: str) -> SimulatedSlot:
        everyone = list(self._machine.slots.values())
        there = [slot for slot in everyone if not slot.lost]
        index = [slot.gpu.uuid for slot in everyone].index(uuid) if uuid in self._machine.slots else len(everyone)
        return super()._slot(there[index].gpu.uuid if index < len(there) else uuid)


class BelievesSuccess(SimulatedDevice):
    """Nothing is read back."""

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        try:
            return super().exclusive(uuid, wanted)
        except DeviceError as error:
            if error.trouble == "not_applied":
                return Applied(float(wanted), float(wanted))
            raise


class RemembersTheLastBefore(SimulatedDevice):
    """Takes the setting before the last change, not before the first, for the original."""

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        if uuid in self._machine.slots:
            self._machine.slots[uuid].original = None
        return super().cap_power(uuid, watts)


class MissesEnergy(SimulatedDevice):
    """One missing value turns the whole reading into an error."""

    def read(self, uuid: str) -> GpuReading:
        self._able(uuid, Ability.READ_ENERGY)
        return super().read(uuid)


class SaysYes(SimulatedMps):
    """Terminates no client, and claims it did."""

    def terminate(self, uuid: str, pid: int) -> bool:
        return pid in self.clients(uuid)


class GivesGigabytes(SimulatedMps):
    """A limit of decimal gigabytes where MPS counts in binary ones."""

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        environment = super().environment(uuid, sm_percent, memory_gib)
        return environment | {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={math.floor(memory_gib * 1000)}M"}


class OnePipeForAll(SimulatedMps):
    """All daemons in one directory."""

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        environment = super().environment(uuid, sm_percent, memory_gib)
        return environment | {"CUDA_MPS_PIPE_DIRECTORY": str(self._root)}


class Restarts(SimulatedMps):
    """A start is a restart: who was a client is none any more."""

    def start(self, uuid: str) -> None:
        self.stop(uuid)
        super().start(uuid)


def rounds_up(gpu: SimulatedGpu, sm_percent: float) -> int:
    return math.ceil(sm_percent * gpu.kind.sm_count / 100)


def forgets_its_limit(gpu: SimulatedGpu, context: SimulatedContext, memory_gib: float) -> None:
    context.memory_gib = memory_gib


def recovers_at_once(daemon: SimulatedDaemon) -> None:
    for context in daemon.clients():
        context.error = 810
    daemon.state = MpsState.ACTIVE


class FaultsEverywhere(Machine):
    """One daemon for all GPUs: a fault on one hits the clients of all."""

    def mps_faults(self, uuid: str) -> None:
        for each in self.slots:
            super().mps_faults(each)


@dataclass(frozen=True)
class Bug:
    """How our device is broken, and a check that must notice."""

    name: str
    caught_by: str
    device: type[SimulatedDevice] = SimulatedDevice
    mps: type[SimulatedMps] = SimulatedMps
    machine: type[Machine] = Machine
    patched: tuple[type, str, Callable[..., object]] | None = None


BUGS = [
    Bug("a lost GPU hides the others", "a_lost_gpu_is_missing_and_hides_no_other", device=LosesAll),
    Bug("restore forgets power", "restoring_puts_back_what_was_set_before_the_first_change", device=ForgetsPower),
    Bug("a cap out of range is taken", "what_is_out_of_range_is_refused_before_anything_is_written", TakesAnyCap),
    Bug("events come twice", "every_critical_error_is_told_once", device=TellsTwice),
    Bug("the dead are listed", "a_process_that_does_not_exist_is_not_listed", device=ListsTheDead),
    Bug("energy in J", "the_energy_counter_is_in_millijoules", device=SaysJoules),
    Bug("an index is a name", "a_uuid_means_its_own_device_whatever_its_index_has_become", device=AddressesByIndex),
    Bug("success is believed", "success_without_effect_is_found_out", device=BelievesSuccess),
    Bug("the last original is kept", "after_a_crash_the_first_originals_are_put_back", device=RemembersTheLastBefore),
    Bug("what is missing is an error", "what_a_device_cannot_say_is_none_and_no_error", device=MissesEnergy),
    Bug("terminate does nothing", "a_terminated_client_is_cut_off_and_the_others_work_on", mps=SaysYes),
    Bug("decimal memory", "the_environment_names_the_gpu_by_uuid_and_both_limits_in_mpss_form", mps=GivesGigabytes),
    Bug(
        "one pipe directory",
        "every_gpu_has_a_pipe_directory_of_its_own_and_a_container_is_told_of_it",
        mps=OnePipeForAll,
    ),
    Bug("a start restarts", "starting_a_daemon_that_answers_does_nothing", mps=Restarts),
    Bug("a fault spreads", "a_fatal_fault_hits_all_clients_of_its_gpu_and_none_of_another", machine=FaultsEverywhere),
    Bug(
        "multiprocessors are rounded up",
        "a_client_sees_its_percentage_of_multiprocessors_rounded_down",
        patched=(SimulatedGpu, "sm_share", rounds_up),
    ),
    Bug(
        "memory has no limit",
        "a_client_gets_memory_up_to_its_limit",
        patched=(SimulatedGpu, "hold", forgets_its_limit),
    ),
    Bug(
        "a fault is forgotten at once",
        "a_faulted_server_takes_clients_again_when_those_affected_are_gone",
        patched=(SimulatedDaemon, "fault", recovers_at_once),
    ),
]


@contextmanager
def broken(bug: Bug) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if bug.patched is not None:
            patch.setattr(*bug.patched)
        yield


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name.replace(" ", "_") for bug in BUGS])
def test_the_suite_finds_a_deliberate_bug(bug: Bug) -> None:
    fallen = set()
    with broken(bug):
        for check in CHECKS:
            stage = InProcess(bug.machine(KINDS), bug.device, bug.mps)
            try:
                check(stage.made())
            except (AssertionError, DeviceError, pytest.fail.Exception):
                fallen.add(named(check))
    assert bug.caught_by in fallen
    assert len(fallen) < len(CHECKS) / 2, "the bug breaks the device altogether: that it is found proves little"
