"""The seam to a node's GPUs and their MPS daemons: what the agent asks of NVML and MPS, real or simulated.

Every GPU is named by its UUID: indexes change when a device falls off the bus. A setting is read, written and read
back: success of the call proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Ability(StrEnum):
    """What one device was found able to do, by trying it."""

    READ_POWER = "read_power"
    READ_ENERGY = "read_energy"
    READ_UTILIZATION = "read_utilization"
    READ_ECC = "read_ecc"
    LOCK_CLOCKS = "lock_clocks"
    CAP_POWER = "cap_power"
    COMPUTE_MODE = "compute_mode"
    EVENTS = "events"
    MPS = "mps"


class Trouble(StrEnum):
    """Why a device or its MPS daemon did not do what was asked."""

    LOST = "lost"  # fell off the bus; only this device
    NOT_SUPPORTED = "not_supported"  # a state, not an error
    NO_PERMISSION = "no_permission"
    OUT_OF_RANGE = "out_of_range"
    NOT_APPLIED = "not_applied"  # accepted, and not in force when read back
    TIMEOUT = "timeout"
    NO_DRIVER = "no_driver"
    FAULT = "fault"  # the MPS server is in FAULT
    DOWN = "down"  # there is no MPS daemon
    GARBLED = "garbled"  # an answer that is none
    UNKNOWN = "unknown"


class DeviceError(Exception):
    """A device, or its MPS daemon, could not do what was asked of it."""

    def __init__(self, trouble: Trouble, uuid: str, what: str) -> None:
        super().__init__(f"{uuid or 'the driver'}: {what} ({trouble})")
        self.trouble = trouble
        self.uuid = uuid
        self.what = what


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One device as it was found. Watts of 0 and empty clocks: the device does not say."""

    index: int
    uuid: str
    name: str
    pci: str
    memory_gib: float
    sm_count: int
    clocks_mhz: tuple[int, ...]  # supported SM clocks, ascending
    power_min_w: float
    power_max_w: float
    power_default_w: float
    abilities: frozenset[Ability]


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One device at one moment; None where it does not say."""

    memory_used_gib: float
    utilization_percent: float | None = None
    power_w: float | None = None
    energy_mj: int | None = None  # since the driver was loaded: it starts again at 0
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    clock_reasons: frozenset[str] = frozenset()  # hw_slowdown, sw_thermal, hw_thermal, power_brake, power_cap
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds a context on a device, under MPS or not."""

    pid: int
    memory_gib: float | None


@dataclass(frozen=True, slots=True)
class Applied:
    """A setting as it was asked for, and as it was read back; None where it cannot be read, or is the device's own."""

    requested: float | None
    applied: float | None


@dataclass(frozen=True, slots=True)
class XidEvent:
    """A critical error that the driver reported."""

    uuid: str
    xid: int


class Device(Protocol):
    """The GPUs of this machine. Every call may raise DeviceError; none blocks for longer than its deadline."""

    def gpus(self) -> tuple[GpuDevice, ...]:
        """Enumerate afresh, by index; a lost device is missing and hides no other."""

    def read(self, uuid: str) -> GpuReading: ...

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Processes with a context, those under MPS included, that exist."""

    def lock_clock(self, uuid: str, mhz: int | None) -> Applied:
        """Hold the SM clock at `mhz`, one of the supported; None frees it."""

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        """Set the power limit; None sets the default of the device."""

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        """EXCLUSIVE_PROCESS: nobody but the MPS server opens the device; 1.0 and 0.0 stand for on and off."""

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        """Critical errors since the last call; waits up to `seconds` for the first."""

    def restore(self) -> None:
        """Put clocks, power limits and compute modes back to what they were before the first change."""

    def close(self) -> None: ...


class MpsState(StrEnum):
    """How the MPS of one device is."""

    DOWN = "down"  # no daemon answers
    IDLE = "idle"  # a daemon without a server: no client has come yet
    ACTIVE = "active"
    FAULT = "fault"  # new clients are refused until those affected are gone


class Mps(Protocol):
    """One MPS daemon per GPU, each with its own pipe directory."""

    def start(self, uuid: str) -> None:
        """Have a daemon that answers; nothing is done where one does."""

    def stop(self, uuid: str) -> None: ...

    def state(self, uuid: str) -> MpsState: ...

    def clients(self, uuid: str) -> frozenset[int]:
        """Host PIDs of the clients; a process that is not here runs without a limit."""

    def terminate(self, uuid: str, pid: int) -> bool:
        """Cut one client's work off without harm to the others; whether the daemon says so."""

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        """What a client must find in its environment before it opens the device."""

    def folders(self, uuid: str) -> tuple[Path, ...]:
        """What a container must see to reach the daemon."""
