"""Where the root helper listens and remembers, who may speak there, and what must hold of both before it starts."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import dataclass
from pathlib import Path

SOCKET = Path("/run/gpuwright-privileged/socket")
STATE = Path("/var/lib/gpuwright-privileged")
MOST_WAITING = 64


class CannotServe(Exception):
    """The helper must not or cannot run here; its message says why."""


@dataclass(frozen=True, slots=True)
class HelperSetup:
    """Where the helper listens, who may speak, and where it remembers."""

    socket: Path
    folder: Path
    uid: int | None = None  # one of the two may speak, and root
    gid: int | None = None  # the peer's own group, not one of its others


def may_speak(place: HelperSetup, uid: int, gid: int) -> bool:
    return uid == 0 or uid == place.uid or (place.gid is not None and gid == place.gid)


def locked(folder: Path) -> int:
    """One helper a folder: two would take each other's settings for the originals."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _insist_on_own(folder)
    handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise CannotServe(f"another helper already serves with {folder}") from None
    return handle


def listening(place: HelperSetup) -> socket.socket:
    """A socket that only the peer's user, or its group, can connect to; who it is is asked again at each connection."""
    place.socket.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    _insist_on_own(place.socket.parent)
    place.socket.unlink(missing_ok=True)  # the lock is ours: whoever made it is gone
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    mask = os.umask(0o177)
    try:
        listener.bind(str(place.socket))
    except OSError as error:
        listener.close()
        raise CannotServe(f"cannot listen at {place.socket}: {error}") from error
    finally:
        os.umask(mask)
    place.socket.chmod(0o600 if place.gid is None else 0o660)  # while it is ours
    if os.geteuid() == 0:
        os.chown(place.socket, -1 if place.uid is None else place.uid, -1 if place.gid is None else place.gid)
    listener.setblocking(False)
    listener.listen(MOST_WAITING)
    return listener


def insist_on_somebody(place: HelperSetup) -> None:
    """The kernel shows everybody of another namespace under one number, that of `nobody`."""
    for number, kind in ((place.uid, "uid"), (place.gid, "gid")):
        if number is not None and number == int(Path(f"/proc/sys/kernel/overflow{kind}").read_text()):
            raise CannotServe(f"{kind} {number} is anybody whom the kernel has no number for; name a user of its own")


def _insist_on_own(folder: Path) -> None:
    """Where others can write, they could put another file, or another socket, in place of ours."""
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise CannotServe(f"{folder} must belong to user {os.geteuid()} and be writable by nobody else")
