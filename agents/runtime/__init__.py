"""The seam to the processes that serve and train: started from templates, asked, drained and ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agents.templates import Filled


@dataclass(frozen=True, slots=True)
class Launch:
    """One copy of an instance as it shall be started. `copy` names it for ever; `gpu` is a UUID."""

    copy: str
    gpu: str
    filled: Filled  # argv, environment, probes, hooks: the template with its placeholders filled
    port: int  # 0: it serves nobody
    limits: Mapping[str, str] = field(default_factory=dict)  # environment that limits it, from Mps.environment
    folders: tuple[str, ...] = ()  # what a container must see; `:ro` at the end of one: to read

    @property
    def oom_score(self) -> int:
        """When the host runs out of memory a job goes before a service."""
        is_job = bool(self.filled.checkpoint_signal) or self.port == 0
        return 500 if is_job else 0


@dataclass(frozen=True, slots=True)
class Running:
    """A process that was started for a copy. A PID alone is nobody's name: it is used again."""

    copy: str
    pid: int
    start_ticks: int  # field 22 of /proc/PID/stat
    boot_id: str
    container: str = ""


class LaunchError(Exception):
    """A copy could not be started; its message says why."""


class CopyRuntime(Protocol):
    """Starts copies and ends them. A copy outlives the agent that started it."""

    def start(self, launch: Launch) -> Running: ...

    def find(self) -> tuple[Running, ...]:
        """Every copy of ours that runs, also one whose start was not recorded."""

    def alive(self, running: Running) -> bool:
        """Whether exactly this process runs; a zombie does not."""

    def pids(self, running: Running) -> frozenset[int]:
        """Host PIDs of the process and all its descendants: any of them may be the one that opened the device."""

    def end(self, running: Running, force: bool) -> None:
        """Ask the copy to stop (SIGTERM), or make it (SIGKILL to all its processes). Nothing when it is gone."""

    def tell(self, running: Running, signal_name: str) -> None:
        """Send a template's own signal (SIGUSR1, ...) to the copy's main process. Nothing when it is gone."""

    def log_tail(self, copy: str) -> str:
        """The last lines that it printed: why it failed to start."""

    def tidy(self, copies: Collection[str]) -> None:
        """Keep what copies leave behind within bounds: their logs are cut, those of copies not named are deleted."""
