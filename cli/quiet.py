"""Ends commands that run for minutes by signals, and keeps warnings and what libraries print out of their output."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any


@contextlib.contextmanager
def end_by_signals() -> Iterator[None]:
    """Ends the run on SIGTERM, or when its terminal closes, as Ctrl-C does."""

    def end(number: int, frame: FrameType | None) -> Any:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Sends what compiled libraries print to stderr, in forked workers too: stdout is for the answer alone."""
    if sys.stdout is None or sys.stderr is None:  # closed by who called
        yield
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


@contextlib.contextmanager
def quiet_log() -> Iterator[None]:
    """Hides warnings, for example about slow statements: in virtual time they mean nothing."""
    log = logging.getLogger()
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
