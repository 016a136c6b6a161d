"""Shows on a terminal what a command waits for, and for how long."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_SECONDS = 0.7  # a quick answer shows nothing
STEP_SECONDS = 0.5


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Writes one line to stderr while the block lasts, and removes it at the end; only on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    began, ended = time.monotonic(), threading.Event()

    def show() -> None:
        pause = FIRST_SECONDS
        while not ended.wait(pause):
            pause = STEP_SECONDS
            sys.stderr.write(f"\r{words}: {time.monotonic() - began:.0f} s \x1b[K")
            sys.stderr.flush()
        if pause == STEP_SECONDS:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
