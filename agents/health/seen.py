"""What is known of one GPU's health at one moment, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agents.contract import Health
from agents.device import MpsState, Reading, Trouble


class Cause(StrEnum):
    """Why a GPU is not ok."""

    XID = "xid"  # reason: xid_79
    ECC = "ecc"
    LOST = "lost"
    UNREADABLE = "unreadable"
    MPS_FAULT = "mps_fault"
    MPS_DOWN = "mps_down"
    HOT = "hot"
    HW_SLOWDOWN = "hw_slowdown"
    HW_THERMAL = "hw_thermal"
    SW_THERMAL = "sw_thermal"
    POWER_BRAKE = "power_brake"


@dataclass(frozen=True, slots=True)
class Observed:
    """One GPU as it was seen just now."""

    uuid: str
    present: bool = True  # it was enumerated
    reading: Reading | None = None  # None: it could not be read
    trouble: Trouble | None = None  # why not
    xids: tuple[int, ...] = ()  # since the last time
    mps: MpsState | None = None  # None: not asked, not used, or not started yet


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a GPU is, for the report, and whether anything may be started on it."""

    health: Health
    reason: str = ""  # a Cause; of an XID with its number: xid_79
    fenced: bool = False  # nothing is started on it
    message: str = ""
    needs: str = ""  # what a person has to do: reset, reboot, replace; empty: nothing


@dataclass(frozen=True, slots=True)
class State:
    """What is remembered of one GPU. Plain data: journaled, it survives restarts of the agent."""

    uuid: str
    cause: str = ""  # why it is fenced; empty: it is not
    xid: int = 0
    needs: str = ""  # it stays fenced until `returned`
    until: float = 0.0  # fenced until here at the earliest
    relapses: int = 0
    good_since: float | None = None  # no cause for fencing since
    slowed: str = ""  # degraded, not fenced
    slow_since: float | None = None
    clear_since: float | None = None
    unread: int = 0  # readings in a row that failed
    ecc: int | None = None
    energy_mj: int | None = None
    present: bool = True
    at: float = 0.0
