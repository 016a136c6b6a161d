"""The device of a simulated machine: answers and acts as NVML would, on the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agents.devices.simulated.machine import Machine, SimulatedSlot, current_settings
from agents.devices.simulated.truth import SetValues
from agents.seams.device import Ability, Applied, DeviceError, GpuDevice, GpuProcess, GpuReading, Trouble, XidEvent

DEADLINE_SECONDS = 2.0
POLL_SECONDS = 0.05
ABILITIES = frozenset(Ability)

Wait = Callable[[float], None]


def no_time_passes(seconds: float) -> None:
    """Ignores the wait: in virtual time a slow answer takes none."""


class SimulatedDevice:
    """A Device over a machine. `clock` returns the machine's time; `wait` spends the time that slow calls take."""

    def __init__(self, machine: Machine, clock: Callable[[], float], wait: Wait = no_time_passes) -> None:
        self._machine = machine
        self._clock = clock
        self._wait = wait
        self._event_count, _ = machine.events_since(0)

    def gpus(self) -> tuple[GpuDevice, ...]:
        self._driver()
        there = [slot for slot in self._machine.slots.values() if not slot.lost]
        return tuple(self._describe(index, slot) for index, slot in enumerate(there))

    def read(self, uuid: str) -> GpuReading:
        slot = self._slot(uuid)
        if slot.reads_fail:
            raise DeviceError(Trouble.UNKNOWN, uuid, "reading failed")
        gpu, lacking = slot.gpu, slot.unsupported
        return GpuReading(
            memory_used_gib=gpu.memory_used_gib,
            utilization_percent=None if Ability.READ_UTILIZATION in lacking else gpu.utilization_percent,
            power_w=None if Ability.READ_POWER in lacking else gpu.power_mean_w,
            energy_mj=None if Ability.READ_ENERGY in lacking else gpu.energy_mj,
            temperature_c=gpu.temperature_c,
            sm_clock_mhz=float(gpu.clock_mhz),
            clock_reasons=gpu.clock_reasons,
            ecc_uncorrected=gpu.ecc_uncorrected if gpu.kind.ecc and Ability.READ_ECC not in lacking else None,
        )

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        slot = self._slot(uuid)
        held: dict[int, float] = {}
        for context in slot.gpu.contexts:
            held[context.pid] = held.get(context.pid, 0.0) + context.memory_gib
        listed = [GpuProcess(pid, memory_gib) for pid, memory_gib in held.items()]
        listed += [GpuProcess(pid, None) for pid in slot.stale_pids]
        return tuple(process for process in listed if self._exists(slot, process.pid))

    def lock_clock(self, uuid: str, mhz: int | None) -> Applied:
        slot = self._able(uuid, Ability.LOCK_CLOCKS)
        if mhz is not None and mhz not in slot.gpu.clocks_mhz:
            low, high = slot.gpu.clocks_mhz[0], slot.gpu.clocks_mhz[-1]
            raise DeviceError(
                Trouble.OUT_OF_RANGE, uuid, f"clock {mhz} MHz is not supported; clocks are {low} to {high}"
            )
        in_force = self._write(slot, replace(current_settings(slot.gpu), locked_mhz=mhz))
        return _compare_applied(uuid, "the SM clock", mhz, in_force.locked_mhz)

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        slot = self._able(uuid, Ability.CAP_POWER)
        kind = slot.gpu.kind
        if watts is not None and not kind.power_min_w <= watts <= kind.power_max_w:
            allowed = f"{kind.power_min_w:g}..{kind.power_max_w:g}"
            raise DeviceError(Trouble.OUT_OF_RANGE, uuid, f"power limit {watts:g} W is outside {allowed}")
        wanted = kind.power_default_w if watts is None else watts
        in_force = self._write(slot, replace(current_settings(slot.gpu), cap_w=wanted))
        applied = _compare_applied(uuid, "the power limit", wanted, in_force.cap_w)
        return replace(applied, requested=watts)

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        slot = self._able(uuid, Ability.COMPUTE_MODE)
        strangers = {context.pid for context in slot.gpu.contexts if not context.under_mps}
        if wanted and slot.gpu.exclusive and strangers and not slot.daemon.clients():
            raise DeviceError(Trouble.FOREIGN, uuid, f"process {min(strangers)} has it to itself, outside MPS")
        in_force = self._write(slot, replace(current_settings(slot.gpu), exclusive=wanted))
        return _compare_applied(uuid, "the compute mode", float(wanted), float(in_force.exclusive))

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        self._driver()
        until = self._clock() + seconds
        while True:
            self._event_count, events = self._machine.events_since(self._event_count)
            if events or self._wait is no_time_passes or self._clock() >= until:
                return events
            self._wait(min(POLL_SECONDS, until - self._clock()))

    def restore(self) -> None:
        self._driver()
        refused = None
        for uuid, slot in self._machine.slots.items():
            if slot.original is None or slot.lost:
                continue  # a device that returns to the bus has lost our settings
            try:
                self._write(self._slot(uuid), slot.original)
                slot.original = None
            except DeviceError as error:
                refused = error
        if refused is not None:
            raise refused

    def close(self) -> None:
        """Does nothing, since nothing is held open."""

    def _describe(self, index: int, slot: SimulatedSlot) -> GpuDevice:
        kind = slot.gpu.kind
        lacking = set(slot.unsupported) if kind.ecc else slot.unsupported | {Ability.READ_ECC}
        return GpuDevice(
            index=index,
            uuid=slot.gpu.uuid,
            name=kind.product,
            pci=slot.gpu.pci,
            memory_gib=kind.memory_gib,
            sm_count=kind.sm_count,
            clocks_mhz=slot.gpu.clocks_mhz,
            power_min_w=kind.power_min_w,
            power_max_w=kind.power_max_w,
            power_default_w=kind.power_default_w,
            abilities=ABILITIES - lacking if lacking else ABILITIES,
            serial=slot.gpu.serial,
        )

    def _driver(self) -> None:
        if not self._machine.driver_loaded:
            raise DeviceError(Trouble.NO_DRIVER, "", "no NVIDIA driver is loaded")

    def _slot(self, uuid: str) -> SimulatedSlot:
        self._driver()
        try:
            slot = self._machine.at(uuid, self._clock())
        except KeyError:
            raise DeviceError(Trouble.LOST, uuid, "no such device") from None
        spend(slot.slow_seconds, uuid, self._wait)
        if slot.lost:
            raise DeviceError(Trouble.LOST, uuid, "the device has fallen off the bus")
        return slot

    def _able(self, uuid: str, ability: Ability) -> SimulatedSlot:
        slot = self._slot(uuid)
        if ability in slot.unsupported:
            raise DeviceError(Trouble.NOT_SUPPORTED, uuid, f"the device does not support {ability}")
        return slot

    def _write(self, slot: SimulatedSlot, wanted: SetValues) -> SetValues:
        """Changes a setting and returns what is in force afterwards."""
        before = current_settings(slot.gpu)
        if slot.original is None:
            slot.original = before
        self._machine.writes += 1
        if slot.setters == "no_permission":
            raise DeviceError(Trouble.NO_PERMISSION, slot.gpu.uuid, "changing settings needs root")
        if slot.setters == "work" and wanted != before:
            slot.gpu.locked_mhz, slot.gpu.cap_w, slot.gpu.exclusive = wanted.locked_mhz, wanted.cap_w, wanted.exclusive
            slot.gpu.changed()
        return current_settings(slot.gpu)

    def _exists(self, slot: SimulatedSlot, pid: int) -> bool:
        return pid not in slot.stale_pids and self._machine.pid_exists(pid)


def spend(seconds: float, uuid: str, wait: Wait) -> None:
    """Spends the time of a slow call, up to the deadline."""
    if seconds > 0:
        wait(min(seconds, DEADLINE_SECONDS))
        if seconds >= DEADLINE_SECONDS:
            raise DeviceError(Trouble.TIMEOUT, uuid, f"no answer within {DEADLINE_SECONDS:g} s")


def _compare_applied(uuid: str, what: str, wanted: float | None, found: float | None) -> Applied:
    if found != wanted:
        raise DeviceError(Trouble.NOT_APPLIED, uuid, f"{what} was set to {wanted}, but is {found}")
    return Applied(wanted, found)
