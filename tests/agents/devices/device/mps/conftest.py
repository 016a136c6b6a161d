"""The real MPS control over the fake program."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from agents.devices.mps import MpsControl
from tests.support import fake_mps

UUID = f"GPU-{uuid4()}"  # no other test's


@pytest.fixture
def root() -> Iterator[Path]:
    """Short: a socket's path holds 107 bytes. Processes that still run in it at the end are killed."""
    made = Path(tempfile.mkdtemp(prefix="mps-"))
    yield made
    for pipe in made.iterdir():
        fake_mps.kill(pipe)
    shutil.rmtree(made, ignore_errors=True)


@pytest.fixture
def mps(root: Path) -> MpsControl:
    return MpsControl(root, fake_mps.program(), deadline_seconds=5.0, quit_seconds=0)


@pytest.fixture
def hasty(root: Path) -> MpsControl:
    """For programs that hang for good."""
    return MpsControl(root, fake_mps.program(), deadline_seconds=0.3, terminate_seconds=0.3, quit_seconds=0)


@pytest.fixture
def pipe(root: Path) -> Path:
    return root / UUID
