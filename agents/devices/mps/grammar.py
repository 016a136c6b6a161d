"""Parses strictly what the MPS control program prints: output outside the grammar is no answer.

Facts, of NVIDIA's MPS documentation ("Legacy MPS v2 Interface") and the manual page of nvidia-cuda-mps-control:

- The program reads commands from stdin, one a line, until its end, and prints each reply to stdout. A command that is
  refused is answered with an error message there as well. It exits with 0 if it could talk to the daemon, even if
  the daemon answered an error, and with another status if there is none or the connection broke.
- `get_server_list` and `get_client_list SERVER` print PIDs, and nothing at all if there are none.
- `get_server_status SERVER` prints INITIALIZING, ACTIVE or FAULT.
- `terminate_client SERVER CLIENT` returns when the client's contexts are gone, and prints 0; or a CUDA error.
- `get_default_active_thread_percentage` prints a percentage such as 100.0. Our daemons are left at 100.
- Without a daemon: "Cannot find MPS control daemon process". That is also printed when the path of the control socket
  is longer than the 107 bytes that a Unix socket's address holds.

Nothing in a reply marks it as complete, and an empty one means "no clients". So each command is followed by one whose
reply is known, the percentage; without it the reply before is not believed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from agents.seams.device import MpsState

MARK = "get_default_active_thread_percentage"
NO_DAEMON = "Cannot find MPS control daemon process"
LONGEST_SOCKET_PATH_BYTES = 107

_MARKED = re.compile(r"100(\.0+)?")
_PID = re.compile(r"[1-9][0-9]{0,6}")
_HIGHEST_PID = 4_194_304
_CUDA_ERROR = re.compile(r"CUDA_ERROR_[A-Z_]+|[1-9][0-9]{0,2}")
_STATES = {"INITIALIZING": MpsState.IDLE, "ACTIVE": MpsState.ACTIVE, "FAULT": MpsState.FAULT}


class UnreadableMpsOutput(Exception):
    """The output does not match the grammar."""


def build_script(commands: Sequence[str]) -> str:
    """Returns the program's input: each command, and the one whose reply marks the end."""
    return "".join(f"{command}\n{MARK}\n" for command in commands)


def split_replies(printed: bytes, commands: int) -> tuple[tuple[str, ...], ...]:
    """Splits the output into the lines of each reply, each of which must be followed by its mark."""
    try:
        text = printed.decode("ascii")
    except UnicodeDecodeError as error:
        raise UnreadableMpsOutput("it is not text") from error
    if not text.endswith("\n"):
        raise UnreadableMpsOutput("it ends within a line")
    found: list[tuple[str, ...]] = []
    lines: list[str] = []
    for line in text.split("\n")[:-1]:
        word = line.strip(" \t\r")
        if _MARKED.fullmatch(word):
            found.append(tuple(lines))
            lines = []
        elif word:
            lines.append(word)
    if lines or len(found) != commands:
        raise UnreadableMpsOutput(f"{len(found)} replies to {commands} commands, and {len(lines)} extra lines")
    return tuple(found)


def parse_pids(reply: Sequence[str]) -> frozenset[int]:
    """Parses PIDs of servers or clients; an empty reply means none."""
    words = [word for line in reply for word in line.split()]
    for word in words:
        if not _PID.fullmatch(word) or int(word) > _HIGHEST_PID:
            raise UnreadableMpsOutput(f"{word!r} is not a PID")
    return frozenset(int(word) for word in words)


def parse_status(reply: Sequence[str]) -> MpsState:
    """Parses a server's status; INITIALIZING counts as idle."""
    if len(reply) != 1 or reply[0] not in _STATES:
        raise UnreadableMpsOutput(f"{' '.join(reply)!r} is not a server status")
    return _STATES[reply[0]]


def parse_termination(reply: Sequence[str]) -> bool:
    """Returns True if the client was cut off, which only 0 confirms."""
    if len(reply) == 1 and reply[0] in ("0", "CUDA_SUCCESS"):
        return True
    if len(reply) == 1 and _CUDA_ERROR.fullmatch(reply[0]):
        return False
    raise UnreadableMpsOutput(f"{' '.join(reply)!r} is not the outcome of a termination")
