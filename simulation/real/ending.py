"""Ends a process together with the one that started it, however that ends.

Usage: python -m simulation.real.ending PARENT_PID SIGNAL PROGRAM ARGUMENT...    (becomes the program)
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress

PR_SET_PDEATHSIG = 1


def end_with(parent: int, number: int) -> None:
    """Asks the kernel to send this signal when the parent dies, even by SIGKILL. Does nothing outside Linux."""
    if not sys.platform.startswith("linux"):
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        sys.exit("the parent process is gone")


def bind_command(command: list[str], number: signal.Signals = signal.SIGTERM) -> list[str]:
    """Returns the command in the form that ends with this process, by this signal."""
    return [sys.executable, "-m", "simulation.real.ending", str(os.getpid()), str(int(number)), *command]


def end_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Asks a process to end, and kills it if it lives on for so long."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
    process.kill()
    process.wait()


def main() -> None:
    parent, number, *command = sys.argv[1:]
    end_with(int(parent), int(number))
    os.execvp(command[0], command)  # noqa: S606 - replaces this process on purpose


if __name__ == "__main__":
    main()
