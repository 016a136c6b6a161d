"""Runs the control program once: commands in, text out, killed at the deadline."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from agents.host.plain_files import open_empty

LONGEST_ANSWER_BYTES = 65_536
_KILLED_SECONDS = 0.5  # a killed process that has not ended by then is stuck in the kernel


class TooLate(Exception):
    """The program missed its deadline and was killed."""


@dataclass(frozen=True, slots=True)
class Printed:
    """The program's output. Beyond LONGEST_ANSWER_BYTES it is cut off, since no valid answer is so long."""

    status: int
    output: bytes


def run(argv: Sequence[str], commands: bytes, environment: Mapping[str, str], seconds: float) -> Printed:
    """Runs it. Raises TooLate, or OSError where the program cannot be started."""
    until = time.monotonic() + seconds
    # Its own session, so that its children are killed with it.
    process = subprocess.Popen(
        argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,
        bufsize=0,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(commands)  # far less than a pipe holds, so it does not block
        output = _read(process.stdout.fileno(), until)
        try:
            return Printed(process.wait(max(0.0, until - time.monotonic())), output)
        except subprocess.TimeoutExpired:
            raise TooLate from None
    finally:
        _end(process)
        process.stdout.close()


def detach(argv: Sequence[str], environment: Mapping[str, str], printed: Path, seconds: float) -> int:
    """Starts a background program with its output in a file, and returns the exit status of the foreground part.

    A pipe would not do: the background part may keep it open, and reading would never end.
    """
    with os.fdopen(open_empty(printed), "wb") as file:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            env=dict(environment),
            start_new_session=True,
        )
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        raise TooLate from None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_KILLED_SECONDS)


def _read(descriptor: int, until: float) -> bytes:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    output = b""
    while len(output) <= LONGEST_ANSWER_BYTES:
        remaining = until - time.monotonic()
        if remaining <= 0 or not poll.poll(remaining * 1000):
            raise TooLate
        part = os.read(descriptor, LONGEST_ANSWER_BYTES)
        if not part:
            return output
        output += part
    raise TooLate  # it would print without end
