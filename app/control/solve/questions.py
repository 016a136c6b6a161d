"""Asks what takes long, explanations and what-ifs, in a process of its own at a low priority."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.control.solve.aside import Aside
    from app.control.solve.process import Child

MOST_WAITING = 4  # with more of them an answer would take too long
MOST_OF_ONE = 2  # of those, for each caller
GRACE_SECONDS = 20.0  # beyond the question's own seconds


class SolverBusy(Exception):
    """Too many questions are waiting, in all or of this caller."""


class NoAnswer(Exception):
    """The process died or ran out of time; the message says which."""


class QuestionProcess:
    """One warm process, begun with the first question; all questions go through it, one after the other."""

    def __init__(self, nice: int = 15, cores: int = 1, grace_seconds: float = GRACE_SECONDS) -> None:
        self._nice, self._cores, self._grace_seconds = nice, cores, grace_seconds
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._waiting: Counter[str] = Counter()  # by who asks

    def ask(self, order: Aside, seconds: float, who: str = "") -> Any:
        """The order's answer. Busy or NoAnswer where there is none."""
        from app.control.solve.process import Child, Died, Late

        with self._lock:
            if self._waiting.total() >= MOST_WAITING or (who and self._waiting[who] >= MOST_OF_ONE):
                raise SolverBusy
            self._waiting[who] += 1
            if self._child is None:
                self._child = Child("desk", self._nice, self._cores)
            child = self._child
        try:
            return child.ask(order, seconds + self._grace_seconds).result()
        except Late as late:
            raise NoAnswer(f"{late}; ask for less") from None
        except Died as died:
            raise NoAnswer(str(died)) from None
        finally:
            with self._lock:
                self._waiting[who] -= 1
                self._waiting += Counter()  # forgets who waits for nothing

    def close(self) -> None:
        """End the process, if there is one."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.close()
