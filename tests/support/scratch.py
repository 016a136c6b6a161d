"""The folder that tests write to: in memory where there is room, since tests on a disk wait for it most of their time.

Every database and journal still flushes what it writes: that costs nothing here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

MEMORY = Path("/dev/shm")
PREFIX = "gpuwright-run-"
NEEDED_BYTES = 6 << 30  # in each worker: two Postgres servers with their logs, and what tests leave


def in_memory() -> Path | None:
    """Makes a folder for this run; removes those of runs that are over. None where memory is small or runs no program.

    The path is short, because that of a socket holds 107 bytes.
    """
    if not MEMORY.is_dir() or not os.access(MEMORY, os.W_OK) or os.statvfs(MEMORY).f_flag & os.ST_NOEXEC:
        return None
    for left in MEMORY.glob(f"{PREFIX}*"):
        if not Path("/proc", left.name.removeprefix(PREFIX)).exists():
            # Of a run that failed or was killed. Some tests nest folders too deep for shutil.rmtree.
            subprocess.run(["rm", "-rf", str(left)], check=False)
    if shutil.disk_usage(MEMORY).free < NEEDED_BYTES:
        return None
    folder = MEMORY / f"{PREFIX}{os.getpid()}"
    folder.mkdir()
    folder.chmod(0o1777)  # as /tmp: some servers run as another user
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    return folder
