"""Runs `gpuwright agent mps`: starts MPS daemons for the agent of this node, in whatever container this process is."""

from __future__ import annotations

import logging
import signal
import sys
import threading
from pathlib import Path

from agents.devices.mps.launching import make_launcher
from agents.host.ownership import require_own_folder
from agents.run.opening import MPS, MPS_LAUNCHER

log = logging.getLogger(__name__)


class CannotLaunch(Exception):
    """It cannot run; the message says why."""


def run_launcher(state: Path) -> None:
    """Runs until SIGTERM or SIGINT."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    folder = state / MPS_LAUNCHER
    server = make_launcher(folder, state / MPS)
    try:
        require_own_folder(state)
        require_own_folder(folder)
        server.start()
    except OSError as error:
        raise CannotLaunch(str(error)) from error
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    log.info("MPS daemons are started for who asks in %s", folder)
    ended.wait()
    server.stop()
