"""Picks the operating-system user that the server runs as: Postgres refuses to run as root."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from app.postgres.faults import PostgresError


@dataclass(frozen=True, slots=True)
class ServerUser:
    """The user of the server. `switch` is set when we are root and the server must run as another user."""

    uid: int
    gid: int
    switch: bool

    @property
    def name(self) -> str:
        return _name(self.uid)


def owner_of(cluster: Path) -> ServerUser:
    """Returns the current user; for root, the owner of the folder, and `nobody` for a new folder."""
    me = os.geteuid()
    existing = cluster.stat() if cluster.exists() else None
    if me != 0:
        if existing is not None and existing.st_uid != me:
            raise PostgresError(
                f"{cluster} belongs to {_name(existing.st_uid)}, and you are {_name(me)}; "
                "start as that user (or root), or choose another --data-dir"
            )
        return ServerUser(me, os.getegid(), switch=False)
    if existing is not None and existing.st_uid != 0:
        return ServerUser(existing.st_uid, existing.st_gid, switch=True)
    try:
        nobody = pwd.getpwnam("nobody")
    except KeyError:
        raise PostgresError(
            "Postgres does not run as root and this machine has no user `nobody`; "
            "start as an ordinary user, or set DATABASE_URL"
        ) from None
    return ServerUser(nobody.pw_uid, nobody.pw_gid, switch=True)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
