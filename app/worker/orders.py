"""The worker's own side: orders come in on stdin, messages go out on stdout, as pickles."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any


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
