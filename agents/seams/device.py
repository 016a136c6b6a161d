"""The interface to a node's GPUs and their MPS daemons, real (NVML and MPS) or simulated.

Every GPU is named by its UUID, because indexes change when a device falls off the bus. A setting is read, written and
read back, because a successful call proves nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol


class Ability(StrEnum):
    """An ability of a device, found out by trying it."""

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
    """The reason why a device or its MPS daemon did not do what was requested."""

    LOST = "lost"  # this device fell off the bus; others are not affected
    NOT_SUPPORTED = "not_supported"  # a property of the device, not an error
    NO_PERMISSION = "no_permission"
    OUT_OF_RANGE = "out_of_range"
    NOT_APPLIED = "not_applied"  # accepted, but not in force when read back
    TIMEOUT = "timeout"
    NO_DRIVER = "no_driver"
    FAULT = "fault"  # the MPS server is in FAULT
    DOWN = "down"  # there is no MPS daemon
    FOREIGN = "foreign"  # another owner's MPS daemon, or a process that has the device to itself
    GARBLED = "garbled"  # an answer that cannot be parsed
    UNKNOWN = "unknown"


class DeviceError(Exception):
    """A device or its MPS daemon could not do what was requested."""

    def __init__(self, trouble: Trouble, uuid: str, what: str) -> None:
        super().__init__(f"{uuid or 'the driver'}: {what} ({trouble})")
        self.trouble = trouble
        self.uuid = uuid
        self.what = what


@dataclass(frozen=True, slots=True)
class GpuDevice:
    """One device as it was enumerated. Watts of 0 and empty clocks mean that the device does not report them."""

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
    part_of: str = ""  # of a MIG device: the UUID of its GPU
    mig: str = ""  # of a MIG device: the numbers of its GPU instance and compute instance
    serial: str = ""  # of its board, where the device reports one

    @property
    def place(self) -> str:
        """The address on the PCI bus, and the MIG instance; empty where the device has no address."""
        return f"{self.pci}/{self.mig}" if self.pci and self.mig else self.pci


@dataclass(frozen=True, slots=True)
class GpuReading:
    """One reading of a device; None for what it does not report."""

    memory_used_gib: float
    utilization_percent: float | None = None
    power_w: float | None = None
    energy_mj: int | None = None  # since the driver was loaded; it restarts at 0
    temperature_c: float | None = None
    sm_clock_mhz: float | None = None
    clock_reasons: frozenset[str] = frozenset()  # hw_slowdown, sw_thermal, hw_thermal, power_brake, power_cap
    ecc_uncorrected: int | None = None


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process with a context on a device, under MPS or not."""

    pid: int
    memory_gib: float | None


@dataclass(frozen=True, slots=True)
class Applied:
    """A setting as requested and as read back; None if it cannot be read, or is the device's own."""

    requested: float | None
    applied: float | None


@dataclass(frozen=True, slots=True)
class XidEvent:
    """A critical error reported by the driver."""

    uuid: str
    xid: int


class Device(Protocol):
    """The GPUs of this machine. Every call may raise DeviceError; none blocks beyond its deadline."""

    def gpus(self) -> tuple[GpuDevice, ...]:
        """Enumerates the GPUs by index; a lost device is missing and hides no other."""

    def read(self, uuid: str) -> GpuReading: ...

    def processes(self, uuid: str) -> tuple[GpuProcess, ...]:
        """Returns the existing processes with a context, including those under MPS."""

    def lock_clock(self, uuid: str, mhz: int | None) -> Applied:
        """Locks the SM clock at `mhz`, which must be supported; None releases it."""

    def cap_power(self, uuid: str, watts: float | None) -> Applied:
        """Sets the power limit; None restores the device's default."""

    def exclusive(self, uuid: str, wanted: bool) -> Applied:
        """Sets EXCLUSIVE_PROCESS, in which only the MPS server opens the device; 1.0 means on, 0.0 off.

        An exclusive device that a process outside MPS has to itself is FOREIGN; who set the mode does not matter.
        """

    def events(self, seconds: float) -> tuple[XidEvent, ...]:
        """Returns critical errors since the last call; waits up to `seconds` for the first."""

    def restore(self) -> None:
        """Restores clocks, power limits and compute modes to their values before the first change."""

    def close(self) -> None: ...


class MpsState(StrEnum):
    """The state of one device's MPS daemon."""

    DOWN = "down"  # no daemon answers
    IDLE = "idle"  # a daemon without a server: no client has connected yet
    ACTIVE = "active"
    FAULT = "fault"  # new clients are refused until the affected ones are gone


class Mps(Protocol):
    """The MPS daemons, one for each GPU with its own pipe directory."""

    def start(self, uuid: str) -> None:
        """Starts a daemon, unless one of ours answers already; FOREIGN where another owner's may use the GPU."""

    def stop(self, uuid: str) -> None: ...

    def state(self, uuid: str) -> MpsState: ...

    def clients(self, uuid: str) -> frozenset[int]:
        """Returns the host PIDs of the clients; any other process runs without a limit."""

    def terminate(self, uuid: str, pid: int) -> bool:
        """Terminates one client's work without harm to others; returns whether the daemon confirms it."""

    def environment(self, uuid: str, sm_percent: float, memory_gib: float) -> dict[str, str]:
        """Returns the environment that a client needs before it opens the device.

        With MPS's protocol 2 it also holds the limits. An implementation whose server holds them makes the client's
        place there, and returns the way to it.
        """

    def folders(self, uuid: str) -> tuple[Path, ...]:
        """Returns the folders that a container needs to reach the daemon."""
