"""Shows what a command waits for, and for how long: on a terminal on one line, on a pipe now and then."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

FIRST_SECONDS = 0.7  # a quick answer shows nothing
STEP_SECONDS = 0.5
PIPE_FIRST_SECONDS, PIPE_STEP_SECONDS = 2.0, 15.0


@contextmanager
def waiting(words: str) -> Iterator[None]:
    """Says on stderr that the block is at work: on a terminal by one line, which goes at its end, else by a few."""
    began, ended = time.monotonic(), threading.Event()

    def tell() -> None:
        pause = PIPE_FIRST_SECONDS
        while not ended.wait(pause):
            pause = PIPE_STEP_SECONDS
            print(f"{words}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)

    def show() -> None:
        pause = FIRST_SECONDS
        while not ended.wait(pause):
            pause = STEP_SECONDS
            sys.stderr.write(f"\r{words}: {time.monotonic() - began:.0f} s \x1b[K")
            sys.stderr.flush()
        if pause == STEP_SECONDS:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    thread = threading.Thread(target=show if sys.stderr.isatty() else tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
