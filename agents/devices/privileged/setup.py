"""The setup of the root helper: its socket, its folder, its permitted callers, and the checks before it starts."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from agents.host.ownership import refuse_shared_folder

SOCKET = Path("/run/gpuwright-privileged/socket")
STATE = Path("/var/lib/gpuwright-privileged")
BACKLOG_CONNECTIONS = 64


class CannotServe(Exception):
    """The helper cannot or must not run here; the message says why."""


@dataclass(frozen=True, slots=True)
class HelperSetup:
    """The socket of the helper, its permitted callers, and the folder of its state."""

    socket: Path
    folder: Path
    uid: int | None = None  # users allowed besides root
    gid: int | None = None  # the peer's primary group, not a supplementary one


def may_speak(place: HelperSetup, uid: int, gid: int) -> bool:
    return uid == 0 or uid == place.uid or (place.gid is not None and gid == place.gid)


def lock_folder(folder: Path) -> int:
    """Locks the folder for one helper: a second would take the first one's settings for the originals."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _refuse_shared_folder(folder)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CannotServe(f"another helper already uses {folder}") from None
    return handle


def open_listener(place: HelperSetup) -> socket.socket:
    """Opens a socket that only the allowed user or group can connect to; each connection is checked again."""
    place.socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _refuse_shared_folder(place.socket.parent)
    place.socket.unlink(missing_ok=True)  # we hold the lock, so its creator is gone
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    mask = os.umask(0o177)
    try:
        listener.bind(str(place.socket))
    except OSError as error:
        listener.close()
        raise CannotServe(f"cannot listen at {place.socket}: {error}") from error
    finally:
        os.umask(mask)
    place.socket.chmod(0o600 if place.gid is None else 0o660)  # while we own it
    if os.geteuid() == 0:
        os.chown(place.socket, -1 if place.uid is None else place.uid, -1 if place.gid is None else place.gid)
    listener.setblocking(False)
    listener.listen(BACKLOG_CONNECTIONS)
    return listener


def refuse_overflow_ids(place: HelperSetup) -> None:
    """Refuses the overflow id, under which the kernel shows every user of another namespace."""
    for number, kind in ((place.uid, "uid"), (place.gid, "gid")):
        if number is not None and number == int(Path(f"/proc/sys/kernel/overflow{kind}").read_text()):
            raise CannotServe(
                f"{kind} {number} is the kernel's overflow id, which any unmapped user has; name a dedicated user"
            )


def _refuse_shared_folder(folder: Path) -> None:
    try:
        refuse_shared_folder(folder)
    except PermissionError as error:
        raise CannotServe(str(error)) from error
