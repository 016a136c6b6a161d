"""Lets the application into a server of our own: role, database, password, port."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path
from typing import BinaryIO

import psycopg
from psycopg import sql

from app.postgres.faults import PostgresError

ROLE = DATABASE = "gpuwright"


def url_of(password: str, port: int) -> str:
    return f"postgresql://{ROLE}:{password}@127.0.0.1:{port}/{DATABASE}"


def url_of_running(data_dir: Path) -> str | None:
    """Returns the URL of the server that another process runs on the folder; None if none is ready."""
    try:
        password = (data_dir / "postgres.password").read_text().strip()
        lines = (data_dir / "postgres/postmaster.pid").read_text().split("\n")
    except OSError:
        return None
    ready = len(lines) > 7 and lines[7].strip() == "ready"
    return url_of(password, int(lines[3])) if ready else None


def admin_of_running(data_dir: Path, superuser: str) -> str | None:
    """Returns the superuser's connection string, by the server's socket in the folder; None if no server is ready."""
    folder = data_dir / "postgres"
    try:
        lines = (folder / "postmaster.pid").read_text().split("\n")
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # by which the path is never too long for a socket's
    except OSError:
        return None
    if len(lines) <= 7 or lines[7].strip() != "ready":
        os.close(handle)
        return None
    return f"host=/proc/self/fd/{handle} port={lines[3]} user={superuser} dbname=postgres connect_timeout=10"


def admit(admin_conninfo: str, password: str) -> None:
    """Creates role and database if they are missing, at every start: so an interrupted first start is completed."""
    with psycopg.connect(admin_conninfo, autocommit=True) as admin:
        # Sent as a SCRAM verifier: the password itself reaches neither the wire nor a log.
        verifier = admin.pgconn.encrypt_password(password.encode(), ROLE.encode(), b"scram-sha-256")
        known = admin.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [ROLE]).fetchone()
        change = sql.SQL("{} ROLE {} LOGIN NOSUPERUSER PASSWORD {}")
        verb = sql.SQL("ALTER" if known else "CREATE")
        admin.execute(change.format(verb, sql.Identifier(ROLE), verifier.decode()))
        if not admin.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
            create = sql.SQL("CREATE DATABASE {} OWNER {}")
            admin.execute(create.format(sql.Identifier(DATABASE), sql.Identifier(ROLE)))


def read_password(path: Path) -> str:
    """Returns the stored password, or a new one if the file is missing, which takes effect at this start."""
    try:
        return path.read_text().strip()
    except FileNotFoundError:
        password = secrets.token_urlsafe(24)
        write_privately(path, password + "\n")
        return password


def write_privately(path: Path, text: str) -> None:
    """Writes a file that only its owner can read from the first byte; it is complete and on disk, or absent."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def append_privately(path: Path) -> BinaryIO:
    """Opens a log to append to: a new one is readable by its owner alone, and links are not followed."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "ab")


def free_port(wanted: int | None) -> int:
    """Returns `wanted` if it is free, else any free port."""
    for port in (wanted, 0):
        if port is None:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise PostgresError("no free port on 127.0.0.1")
