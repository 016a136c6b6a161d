"""A daemon of the fake MPS never outlives what it is for: the process of the tests, and its pipe directory."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agents.devices.mps import MpsControl, processes
from tests.support import fake_mps
from tests.support.nvml_stub import needs_gcc
from tests.support.patience import until

pytestmark = needs_gcc
UUID = f"GPU-{uuid4()}"  # no other test's
STARTS = """
import os, signal, sys
from pathlib import Path
from agents.devices.mps import MpsControl
from tests.support import fake_mps

MpsControl(Path(sys.argv[1]), fake_mps.program()).start(sys.argv[2])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mps-") as short:  # a socket's path holds 107 bytes
        yield Path(short)


@pytest.mark.slow
def test_a_daemon_ends_when_the_process_of_the_tests_is_killed(root: Path) -> None:
    done = subprocess.run([sys.executable, "-c", STARTS, str(root), UUID])
    assert done.returncode == -signal.SIGKILL
    assert (root / UUID).is_dir()
    until(lambda: processes.all_of(root / UUID) == [], "the daemon is gone")


def test_a_daemon_ends_when_its_pipe_directory_is_gone(root: Path) -> None:
    MpsControl(root, fake_mps.program()).start(UUID)
    assert processes.all_of(root / UUID)
    shutil.rmtree(root / UUID)
    until(lambda: processes.all_of(root / UUID) == [], "the daemon is gone")
