"""Questions to a desk that fail."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from app.control.solve.aside import Aside


@dataclass(frozen=True, slots=True)
class Sleeps(Aside):
    """Takes its time."""

    seconds: float

    def answered(self) -> str:
        time.sleep(self.seconds)
        return "awake"


@dataclass(frozen=True, slots=True)
class Dies(Aside):
    """Takes its process along."""

    def answered(self) -> None:
        os._exit(3)


@dataclass(frozen=True, slots=True)
class Pid(Aside):
    """Returns the PID of the process that answers."""

    def answered(self) -> tuple[int, int]:
        return os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)
