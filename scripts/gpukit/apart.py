"""Runs a part of the kit in a process of its own, so that nothing of it outlasts its time."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from agents.runtime import proc

GRACE_SECONDS = 10.0  # for a part to end its copies and to restore settings
KILL_SECONDS = 5.0
PAUSE_SECONDS = 0.02
ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER


class Overran(Exception):
    """The part did not end in its time."""


class Died(Exception):
    """The part's process ended without an answer."""


def adopt_orphans() -> None:
    """Makes this process the parent of whatever its children leave behind, so that it finds them."""
    ctypes.CDLL(None).prctl(ADOPT_ORPHANS, 1, 0, 0, 0)


def run_apart(part: Callable[[], dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Returns the part's answer. Raises Overran or Died; either way its processes are gone then."""
    fork = multiprocessing.get_context("fork")
    receiver, sender = fork.Pipe(duplex=False)
    process = fork.Process(target=_answer, args=(part, sender))
    process.start()
    sender.close()
    try:
        if not receiver.poll(seconds):
            raise Overran(f"stopped after {seconds:.0f} s")
        answer: dict[str, Any] = receiver.recv()
        return answer
    except EOFError:
        process.join(KILL_SECONDS)
        raise Died(f"its process ended with status {process.exitcode}") from None
    finally:
        process.terminate()
        process.join(GRACE_SECONDS)
        process.kill()
        process.join(KILL_SECONDS)
        _kill_leftovers()
        receiver.close()


def _answer(part: Callable[[], dict[str, Any]], sender: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the kit's process gets it too, and ends this one in order
    signal.signal(signal.SIGTERM, _leave)
    sender.send(part())


def _leave(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _kill_leftovers() -> None:
    """Kills what a part has left behind: copies and daemons lead sessions of their own."""
    ends_at = time.monotonic() + KILL_SECONDS
    while (left := proc.descendants(os.getpid()) - {os.getpid()}) and time.monotonic() < ends_at:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(PAUSE_SECONDS)
