"""A program named `nvidia-cuda-mps-control` that answers as NVIDIA's does, and whose clients need no CUDA.

It is two: control.c, quick to start, and daemon.py behind it. Faults are files `switch.NAME` in the pipe directory:
`hang`, `fault` (taken once), `no_server`, `max_clients` N, and by command `delay.COMMAND` SECONDS, `break.COMMAND`,
`reply.COMMAND` TEXT. A daemon ends with the process that built the program, and when its pipe directory is gone.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from agents.devices.mps import processes

__all__ = ["folder", "kill", "on_path", "program", "switch"]

NAME = "nvidia-cuda-mps-control"


@functools.cache
def folder() -> Path:
    """Where the program lies; built once a run, with gcc."""
    made = Path(tempfile.mkdtemp(prefix="gpuwright-mps-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    here = Path(__file__).parent
    sleep = shutil.which("sleep")
    assert sleep is not None
    server = made / "nvidia-cuda-mps-server"
    server.symlink_to(sleep)
    python = Path(sys.executable).resolve()
    words = {"PYTHON": python, "DAEMON": here / "daemon.py", "SERVER": server, "OWNER": os.getpid()}
    defined = [f'-D{name}="{word}"' for name, word in words.items()]
    subprocess.run(["gcc", "-O1", *defined, "-o", str(made / NAME), str(here / "control.c")], check=True)
    return made


def program() -> str:
    return str(folder() / NAME)


def on_path(path: str | None = None) -> str:
    """A PATH on which the program is found first."""
    return os.pathsep.join([str(folder()), os.environ.get("PATH", "") if path is None else path])


def switch(pipe: Path, name: str, value: str | int | float | None = "1") -> None:
    """None switches it off."""
    file = pipe / f"switch.{name}"
    if value is None:
        file.unlink(missing_ok=True)
        return
    beside = file.with_name(f"{file.name}.new")
    beside.write_text(f"{value}\n")
    beside.replace(file)


def kill(pipe: Path) -> None:
    """Daemon and server at once, as a crash of both; they are gone when it returns."""
    while leftover := processes.all_of(pipe):
        for pid in leftover:
            processes.kill(pid, pipe)
        time.sleep(0.001)
