"""The last step before a copy's program: prepares the process itself, then calls exec.

Run as a script by a bare interpreter (`python -I -S`), in about 10 ms: code between fork and exec would have to run
inside the agent, which has threads. It prints nothing if the program runs, and otherwise the reason.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_NO_NEW_PRIVS = 38


def prepare(cgroup: str, limiting: str, oom_score: str) -> None:
    """Drops what would be inherited from the agent: default signals, no core file, no new privileges."""
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError):
            signal.signal(number, signal.SIG_DFL)  # Python ignores SIGPIPE, and exec would keep it ignored
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # gigabytes, including requests of tenants
    if cgroup:
        with suppress(OSError):  # not allowed here: the copy is found by other marks
            Path(cgroup, "cgroup.procs").write_text("0", encoding="ascii")
    if limiting:
        Path(limiting, "cgroup.procs").write_text("0", encoding="ascii")
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(oom_score, encoding="ascii")
    if ctypes.CDLL(None).prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError("no_new_privs cannot be set")


def main(report: str, cgroup: str, limiting: str, oom_score: str, *argv: str) -> int:
    descriptor = int(report)
    os.set_inheritable(descriptor, False)  # exec closes it, which tells the agent that the program runs
    try:
        prepare(cgroup, limiting, oom_score)
        os.execv(argv[0], argv)  # noqa: S606  no shell on purpose
    except OSError as error:
        os.write(descriptor, f"{argv[0]}: {error.strerror or error}".encode(errors="replace"))
    return 127


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
