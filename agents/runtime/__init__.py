"""Runs the processes that serve and train: starts them from templates, finds, signals and ends them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agents.templates import Filled


@dataclass(frozen=True, slots=True)
class Launch:
    """One copy of an instance to start. `copy` is its permanent name; `gpu` is a UUID, or several with commas."""

    copy: str
    gpu: str
    filled: Filled  # argv, environment, probes, hooks: the template with its placeholders filled
    port: int  # 0: it does not serve
    limits: Mapping[str, str] = field(default_factory=dict)  # environment variables that limit it, from Mps.environment
    folders: tuple[str, ...] = ()  # what a container must see; `:ro` at the end of one: read-only

    @property
    def oom_score(self) -> int:
        """Ranks jobs before services when the host runs out of memory."""
        is_job = bool(self.filled.checkpoint_signal) or self.port == 0
        return 500 if is_job else 0


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started for a copy. A PID alone does not identify it, since PIDs are reused."""

    copy: str
    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat
    boot_id: str
    container: str = ""
    host: str = ""  # where it listens; empty: at the node's own address
    port: int = 0  # there; 0: the copy's own


class LaunchError(Exception):
    """A copy could not be started; the message says why."""


class ExitUndecided(Exception):
    """How a process has ended is not known yet; ask again."""


class CopyRuntime(Protocol):
    """Starts and ends copies. A copy outlives the agent that started it."""

    def start(self, launch: Launch) -> Running | None:
        """Starts a copy, or goes on with its start. None: its process does not run yet, ask again."""

    def withdraw(self, copy: str, running: Running | None = None) -> None:
        """Takes away what would start a copy, or has started it again. Only `running`, its own process, goes on."""

    def find(self) -> tuple[Running, ...]:
        """Finds every running copy of ours, even one whose start was not recorded."""

    def find_called_away(self) -> dict[str, float]:
        """Returns the copies that somebody else has asked to end, and how many seconds each was given for it."""

    def announce(self, running: Running) -> None:
        """Tells those who wait for it that the copy's limits are verified and that it is warm."""

    def alive(self, running: Running) -> bool:
        """Returns True if exactly this process runs; a zombie does not."""

    def stopped(self, running: Running) -> bool:
        """Returns True if the program has stopped itself, or was stopped, and has not been continued."""

    def pids(self, running: Running) -> frozenset[int]:
        """Returns the host PIDs of the process and all its descendants, any of which may have opened the device."""

    def end(self, running: Running, force: bool) -> None:
        """Asks the copy to stop (SIGTERM), or kills all its processes (SIGKILL). Nothing when it is gone."""

    def tell(self, running: Running, signal_name: str) -> None:
        """Sends a template's own signal (SIGUSR1, ...) to the copy's main process. Nothing when it is gone."""

    def run_beside(self, running: Running, filled: Filled, seconds: float) -> bool:
        """Runs the command that saves a copy, with the copy's environment; returns whether it ended with 0 in time."""

    def exit_code(self, running: Running) -> int | None:
        """Returns the code that the ended process left; 128 and its number for a signal. None where it is unknown.

        Raises ExitUndecided where it will be known later.
        """

    def log_tail(self, copy: str) -> str:
        """Returns the last lines that it printed, which explain a failed start."""

    def read_log(self, copy: str, offset: int | None, most_bytes: int) -> tuple[bytes, int]:
        """Returns whole lines that it printed from `offset` on (None: the last ones), and the offset after them."""

    def close(self) -> None:
        """Lets go of what it holds open; copies go on."""

    def tidy(self, copies: Collection[str]) -> None:
        """Bounds what copies leave behind: cuts logs, and deletes those of copies not named."""
