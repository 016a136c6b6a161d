"""Run as a script between us and Postgres: drops root, ties the server's life to ours, becomes the server.

Usage: python child.py PARENT_PID UID GID PROGRAM ARGUMENT...   (UID is `-` where nothing is dropped)

A script of its own rather than a `preexec_fn`: that runs Python between fork and exec, which is unsafe in a
process with threads, and the server is restarted from a thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(argv: list[str]) -> None:
    parent, uid, gid, program, *arguments = argv
    if uid != "-":
        try:
            os.setgroups([])
            os.setgid(int(gid))
            os.setuid(int(uid))
        except OSError as error:  # a container that maps few users, or keeps root from becoming them
            sys.exit(f"FATAL: cannot become user {uid}: {error}; start as an ordinary user, or set DATABASE_URL")
    # After the change of user, which would clear it: when our parent dies in any way, SIGKILL included, the
    # kernel asks the server for a fast shutdown.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGINT)
    if os.getppid() != int(parent):
        sys.exit("the process that started Postgres is gone")
    os.umask(0o077)
    os.execv(program, [program, *arguments])  # noqa: S606 - replaces this process on purpose


if __name__ == "__main__":
    main(sys.argv[1:])
