"""The values of health judging: what is observed of a GPU, what is remembered, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agents.contract.fields import Health
from agents.seams.device import GpuReading, MpsState, Trouble


class HealthCause(StrEnum):
    """The reason why a GPU is not ok."""

    XID = "xid"  # reported with its number, like xid_79
    LOST = "lost"
    MPS_FAULT = "mps_fault"
    MPS_DOWN = "mps_down"
    ECC = "ecc"
    UNREADABLE = "unreadable"
    HOT = "hot"
    POWER_BRAKE = "power_brake"
    HW_THERMAL = "hw_thermal"
    HW_SLOWDOWN = "hw_slowdown"
    SW_THERMAL = "sw_thermal"


@dataclass(frozen=True, slots=True)
class HealthSettings:
    """The limits of hot and slow, and the time without faults before a GPU is used again."""

    hot_c: float = 93.0
    cool_c: float = 88.0  # a hot GPU stays hot until it is below
    slow_seconds: float = 10.0  # of slowdown before the GPU is degraded
    clear_seconds: float = 60.0  # at full speed before it is no longer degraded
    unread: int = 3  # failed readings in a row
    back_off_seconds: float = 60.0  # after a fault; doubled by each relapse
    mps_back_off_seconds: float = 5.0  # after an MPS fault, which a restarted daemon cures
    longest_back_off_seconds: float = 3600.0
    decay_seconds: float = 3600.0  # without a fault, after which there is one relapse less


@dataclass(frozen=True, slots=True)
class GpuObservation:
    """One GPU as just observed."""

    uuid: str
    present: bool = True  # it was enumerated
    reading: GpuReading | None = None  # None: it could not be read
    trouble: Trouble | None = None  # why not
    xids: tuple[int, ...] = ()  # since the last time
    mps: MpsState | None = None  # None: not asked, not used, or not started yet


@dataclass(frozen=True, slots=True)
class HealthVerdict:
    """A GPU's health for the report, and whether anything may start on it."""

    health: Health
    reason: str = ""  # a HealthCause; an XID with its number, like xid_79
    fenced: bool = False  # nothing is started on it
    message: str = ""
    needs: str = ""  # what a person must do first: reset, reboot, repair; empty: nothing


@dataclass(frozen=True, slots=True)
class HealthState:
    """The health history of one GPU; plain data that is saved and survives restarts of the agent."""

    uuid: str
    cause: str = ""  # why it is fenced; empty: it is not
    xid: int = 0  # of the cause
    ongoing: bool = False  # the cause was present at the last observation
    needs: str = ""  # fenced until `returned`, or until a reset is observed
    until: float = 0.0  # fenced until then at the earliest
    relapses: int = 0
    good_since: float = 0.0  # when the fence was lifted, or the relapses last reduced
    noted: int = 0  # an XID that asks for a reset when convenient
    slowed: str = ""  # degraded, not fenced
    slow_since: float | None = None
    clear_since: float | None = None
    unread: int = 0  # readings in a row that failed
    ecc: int | None = None  # uncorrected errors, as last read
    energy_mj: int | None = None
    present: bool = True
    at: float = 0.0
