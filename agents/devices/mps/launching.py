"""Starts MPS daemons in a container of their own, on an agent's request.

A daemon ends with the container that it is started in, and with it all that it serves: the agent's own is replaced at
every update.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agents.devices.mps.program import PROGRAM, Program
from agents.host.local_socket import LocalServer, NotRunning, ask
from agents.seams.device import DeviceError, Trouble

LAUNCH_SECONDS = 8.0  # the agent waits for ten
UUID = re.compile(r"(GPU|MIG)-[-/0-9A-Za-z]{1,80}")


def make_launcher(folder: Path, root: Path, program: str = PROGRAM) -> LocalServer:
    """Returns what starts the daemons of `root` for those who ask in the folder, which is our user's alone."""
    launched = Program(root, program)

    def launch(question: Mapping[str, Any]) -> None:
        uuid = str(question.get("gpu"))
        if UUID.fullmatch(uuid) is None:
            raise ValueError(f"{uuid!r} is no UUID of a GPU")
        try:
            launched.launch(uuid, LAUNCH_SECONDS)
        except DeviceError as error:
            raise ValueError(error.what) from error

    return LocalServer(folder, {"launch": launch, "hello": lambda _: None})


def ask_to_launch(folder: Path, uuid: str) -> None:
    """Has the daemon of a GPU started, which need not answer yet."""
    try:
        ask(folder, "launch", gpu=uuid)
    except NotRunning as error:
        reason = f"nobody in {folder} starts MPS daemons ({error.__cause__}): does `gpuwright agent mps` run?"
        raise DeviceError(Trouble.DOWN, uuid, reason) from error
    except ValueError as error:
        raise DeviceError(Trouble.DOWN, uuid, str(error)) from error
