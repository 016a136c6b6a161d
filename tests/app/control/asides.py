"""Questions to a desk: some fail, others ask about its process."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

from app.control.solve.aside import Aside
from app.control.solve.questions import NEEDED


@dataclass(frozen=True, slots=True)
class Sleeps(Aside[str]):
    """Takes its time."""

    seconds: float

    def answered(self) -> str:
        time.sleep(self.seconds)
        return "awake"


@dataclass(frozen=True, slots=True)
class Dies(Aside[None]):
    """Takes its process along."""

    def answered(self) -> None:
        os._exit(3)


@dataclass(frozen=True, slots=True)
class Pid(Aside[tuple[int, int]]):
    """Returns the PID of the process that answers."""

    def answered(self) -> tuple[int, int]:
        return os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)


@dataclass(frozen=True, slots=True)
class Loaded(Aside[tuple[str, ...]]):
    """Returns what the process has imported of the modules that questions need."""

    def answered(self) -> tuple[str, ...]:
        return tuple(name for name in NEEDED if name in sys.modules)
