"""FAILURES 7 on real file systems that are full to the last byte."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.proofs.full_disk import PARTS
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.needs_root("to mount a file system")
@pytest.mark.parametrize("part", PARTS)
def test_case_7_on_a_full_disk_nothing_is_lost_or_half_done_and_all_goes_on_when_there_is_room(part: str) -> None:
    with TemporaryDirectory(prefix="gpuwright-full-") as folder:
        words = ["unshare", "--mount", sys.executable, "-m", "tests.proofs.full_disk", part, folder]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert done.stdout == "held\n", done.stderr[-4000:]
