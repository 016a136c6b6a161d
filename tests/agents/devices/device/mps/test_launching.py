"""MPS daemons that a process of its own starts for an agent, which they outlive with the container that it is in."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.devices.mps import MpsControl, processes
from agents.devices.mps.launching import ask_to_launch
from agents.host.local_socket import SOCKET
from agents.run.doctor import mps as checks
from agents.seams.device import DeviceError, MpsState, Trouble
from tests.agents.devices.device.mps.conftest import UUID
from tests.support import fake_mps
from tests.support.forked import ROOT
from tests.support.nvml_stub import needs_gcc
from tests.support.patience import patience, until

pytestmark = [needs_gcc, pytest.mark.slow]
MARK = "GPUWRIGHT_TESTS_LAUNCHER=1"


@pytest.fixture
def launcher(root: Path) -> Iterator[Path]:
    """`gpuwright agent mps`, of whose environment daemons have a part; its folder."""
    words = [sys.executable, "-m", "cli.main", "agent", "mps", "--state-dir", str(root)]
    environment = {**os.environ, **dict([MARK.split("=")]), "PATH": fake_mps.on_path()}
    running = subprocess.Popen(words, cwd=ROOT, env=environment)
    folder = root / "mps-launcher"
    until((folder / SOCKET).exists, "it listens")
    yield folder
    running.terminate()
    assert running.wait(patience()) == 0
    fake_mps.kill(root / "mps" / UUID)


def test_a_daemon_is_started_by_another_process_and_stopped_as_any(root: Path, launcher: Path) -> None:
    mps = MpsControl(root / "mps", fake_mps.program(), deadline_seconds=5.0, quit_seconds=0, launcher=launcher)
    mps.start(UUID)
    daemon = processes.daemon_pid(root / "mps" / UUID)
    assert daemon is not None
    assert MARK in Path(f"/proc/{daemon}/environ").read_text().split("\0")
    assert mps.state(UUID) is not MpsState.DOWN
    mps.start(UUID)
    assert processes.daemon_pid(root / "mps" / UUID) == daemon
    mps.stop(UUID)
    assert mps.state(UUID) is MpsState.DOWN
    [found] = checks.launcher(launcher)
    assert found.level == "ok"


def test_what_is_no_gpu_is_refused_and_so_is_everything_where_nobody_starts_daemons(root: Path, launcher: Path) -> None:
    with pytest.raises(DeviceError, match="is no UUID of a GPU"):
        ask_to_launch(launcher, "../elsewhere")
    mps = MpsControl(root / "mps", fake_mps.program(), launcher=root / "nobody")
    with pytest.raises(DeviceError, match="does `gpuwright agent mps` run") as refused:
        mps.start(UUID)
    assert refused.value.trouble is Trouble.DOWN
    [found] = checks.launcher(root / "nobody")
    assert (found.level, "DaemonSet" in found.advice) == ("fail", True)
