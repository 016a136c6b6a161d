"""docker compose up, really: in the long form alone, on an engine of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.proofs.compose import PROGRAMS
from tests.support.needs import need

ROOT = Path(__file__).parents[2]


@pytest.mark.soak  # builds images for minutes, and then runs for half an hour
@pytest.mark.timeout(7200)
def test_the_testbed_is_healthy_serves_its_spike_and_outlives_chaos() -> None:
    for program, package in PROGRAMS:
        need(program, package)
    words = [sys.executable, "-m", "tests.proofs.testbed", "--debian"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
