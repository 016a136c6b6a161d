"""The conformance suite's way to a machine behind its device's back, so that one test fits every implementation.

An implementation is plugged in by a `Made`: its device, its MPS, and the stage with the fault switches of whatever
stands in for the hardware. The machine on the stage has three GPUs of one kind, and nothing runs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from agents.seams.device import Ability, Device, Mps


@dataclass(frozen=True, slots=True)
class Truth:
    """A GPU's actual settings, read from behind and not through the device."""

    locked_mhz: int | None
    cap_w: float
    exclusive: bool
    energy_j: float  # used since the driver was loaded; the counter is in mJ


class StagedClient(Protocol):
    """A process that became, or did not become, a client of an MPS daemon."""

    @property
    def pid(self) -> int: ...

    @property
    def sm_count(self) -> int | None:
        """Multiprocessors it sees; None: it runs without MPS, or not at all."""

    @property
    def refused(self) -> int | None:
        """The CUDA error that kept it out."""

    def failed(self) -> bool:
        """Whether its context has come to an end that it did not want; the process stays until `end`, or dies of it."""

    def hold(self, memory_gib: float) -> bool:
        """Hold that much device memory; False: it was refused."""

    def end(self) -> None:
        """Exit by itself, or be gone already."""


class Stage(Protocol):
    """The fault switches. Each takes effect before it returns, or soon: `settled` waits."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """Of the three GPUs, by their index at first."""

    def settled(self, holds: Callable[[], bool]) -> bool:
        """Let time pass until it holds; False when it does not within a generous time."""

    # The GPUs.
    def lose(self, uuid: str) -> None:
        """It falls off the bus."""

    def give_back(self, uuid: str) -> None:
        """It is on the bus again."""

    def xid(self, uuid: str, number: int) -> None:
        """The driver reports a critical error."""

    def reads_fail(self, uuid: str, failing: bool) -> None:
        """Every reading of it fails, with an error of no known kind."""

    def setters(self, uuid: str, how: Literal["work", "ignored", "no_permission"]) -> None:
        """`ignored`: they report success and change nothing."""

    def unsupported(self, uuid: str, ability: Ability) -> None:
        """The device cannot do this (READ_POWER, READ_ENERGY, READ_ECC, LOCK_CLOCKS, CAP_POWER, COMPUTE_MODE)."""

    def reload_driver(self) -> None:
        """Energy counters begin at 0, clock locks are lost."""

    def work_for(self, seconds: float) -> None:
        """Let the machine be for that long, so that energy is used; a real clock may make it 0.2 s at most."""

    def preset(self, uuid: str, cap_w: float, exclusive: bool) -> None:
        """Settings made by others before the device was opened; called before its first change."""

    def truth(self, uuid: str) -> Truth: ...

    def writes(self) -> int:
        """How many changes of clocks, limits and modes have reached the driver so far, refused ones included."""

    def occupy(self, uuid: str, memory_gib: float) -> int:
        """A process opens the device outside MPS and holds memory; its PID. It exists until `vacate`."""

    def vacate(self, pid: int) -> None: ...

    def stale(self, uuid: str) -> int:
        """The driver lists a process that does not exist any more; its PID."""

    def reopen(self) -> tuple[Device, Mps]:
        """As an agent after kill -9 finds it: the old device is not closed, and a new one is opened as well."""

    # MPS.
    def client(self, environment: Mapping[str, str], memory_gib: float = 0.5) -> StagedClient:
        """A process starts with this environment and opens the device."""

    def mps_dies(self, uuid: str) -> None:
        """The daemon is killed, its server and its pipes with it."""

    def mps_of_another(self, uuid: str, there: bool) -> None:
        """Another owner starts MPS of its own on this GPU, or ends it."""

    def mps_faults(self, uuid: str) -> None:
        """A client's fatal fault: every client of this GPU is hit."""

    def mps_hangs(self, uuid: str, hanging: bool) -> None:
        """The daemon answers nothing, or answers again."""


@dataclass(frozen=True, slots=True)
class Made:
    """One implementation on its stage."""

    device: Device
    mps: Mps
    stage: Stage
