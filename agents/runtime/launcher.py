"""The last step before a copy's program: prepares the process itself, then calls exec.

Run as a script by a bare interpreter (`python -I -S`), in about 10 ms: code between fork and exec would have to run
inside the agent, which has threads. It prints nothing if the program runs, and otherwise the reason.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import struct
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_ALLOW, _DENY, _KILL = 0x7FFF0000, 0x00050001, 0x80000000  # EPERM for what is denied
# What a user's own program never needs, and what has been used to leave a process's confines, by architecture:
# mounting, namespaces, tracing, reading and writing other processes, modules, kexec, bpf, keyrings, io_uring,
# userfaultfd, time, swap, reboot, files by handle.
_X86 = (
    101, 155, 161, 163, 164, 165, 166, 167, 168, 169, 170, 171, 172, 173, 175, 176, 179, 180, 227, 246, 248, 249, 250,
    272, 298, 304, 305, 308, 310, 311, 313, 320, 321, 323, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442,
)  # fmt: skip
_ARM = (
    39, 40, 41, 51, 60, 89, 97, 104, 105, 106, 112, 117, 142, 161, 162, 170, 217, 218, 219, 224, 225, 241, 265, 266,
    268, 270, 271, 273, 280, 282, 294, 425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442,
)  # fmt: skip
_MACHINES = {"x86_64": (0xC000003E, 56, _X86), "aarch64": (0xC00000B7, 220, _ARM)}  # audit word, clone, what is denied
_CLONE3, _ABSENT = 435, 0x00050026  # ENOSYS: its flags cannot be looked at, and libraries then call clone
_NEW_NAMESPACES = 0x7E020000  # flags of clone


class _Program(ctypes.Structure):
    """The kernel's sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


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


def confine(user: str) -> None:
    """Makes the process a user's own: another UID without groups, if one is named, and a filter of system calls."""
    if user != "-":
        os.setgroups(())
        os.setresgid(int(user), int(user), int(user))
        os.setresuid(int(user), int(user), int(user))
    machine = os.uname().machine
    if machine not in _MACHINES:
        raise OSError(f"no filter of system calls is known for {machine}")
    lines = _filter(*_MACHINES[machine])
    program = b"".join(struct.pack("=HBBI", *line) for line in lines)
    filtered = _Program(len(lines), program)
    if ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filtered), 0, 0) != 0:
        raise OSError("the filter of system calls cannot be set")


def _filter(architecture: int, clone: int, denied: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Returns the filter as lines of BPF: code, jump if true, jump if false, operand."""
    load, equal, at_least, has_bits, answer = 0x20, 0x15, 0x35, 0x45, 0x06
    lines = [(load, 0, 0, 4), (equal, 1, 0, architecture), (answer, 0, 0, _KILL), (load, 0, 0, 0)]
    lines += [(at_least, 0, 1, 0x40000000), (answer, 0, 0, _DENY)]  # the x32 numbers name the same calls
    for number in denied:
        lines += [(equal, 0, 1, number), (answer, 0, 0, _DENY)]
    lines += [(equal, 0, 1, _CLONE3), (answer, 0, 0, _ABSENT), (equal, 0, 4, clone), (load, 0, 0, 16)]
    lines += [(has_bits, 0, 1, _NEW_NAMESPACES), (answer, 0, 0, _DENY), (answer, 0, 0, _ALLOW), (answer, 0, 0, _ALLOW)]
    return lines


def main(report: str, cgroup: str, limiting: str, oom_score: str, user: str, program: str, *argv: str) -> int:
    """Becomes the program: a template's by its path, a user's own by the descriptor that the agent has checked."""
    descriptor = int(report)
    for number in filter(None, (report, program)):
        os.set_inheritable(int(number), False)  # exec closes them, which tells the agent that the program runs
    try:
        prepare(cgroup, limiting, oom_score)
        if user:
            confine(user)
        os.execve(int(program) if program else argv[0], argv, os.environ)  # noqa: S606  no shell on purpose
    except OSError as error:
        os.write(descriptor, f"{argv[0]}: {error.strerror or error}".encode(errors="replace"))
    return 127


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
