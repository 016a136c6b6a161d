"""The worker's own side: orders come in on stdin, messages go out on stdout, as pickles."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

FIRST_TO_GO = "500"  # as oom_score_adj


def offer_memory() -> None:
    """Has the kernel end this process before a database, a server or the planner when memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(FIRST_TO_GO)


def take_orders() -> tuple[Iterator[Any], Callable[[object], None]]:
    """Returns the parent's orders, which end when it does, and what sends it a message."""
    messages = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints must not mix with messages

    def send(message: object) -> None:
        pickle.dump(message, messages, pickle.HIGHEST_PROTOCOL)
        messages.flush()

    return _orders(), send


def _orders() -> Iterator[Any]:
    while True:
        try:
            yield pickle.load(sys.stdin.buffer)  # noqa: S301 (from the process that started us)
        except EOFError:
            return
