"""docker compose up, really: in the long form alone, where there is an engine of Docker."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needs import skip_unless_ci
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]


def has_engine() -> bool:
    if not shutil.which("docker"):
        return False
    words = (["docker", "info"], ["docker", "compose", "version"])
    return all(subprocess.run(word, capture_output=True, timeout=patience()).returncode == 0 for word in words)


@pytest.mark.long
@pytest.mark.soak  # builds images for minutes, and then runs for half an hour
def test_the_testbed_is_healthy_serves_its_spike_and_outlives_chaos() -> None:
    if not has_engine():
        skip_unless_ci(
            "needs Docker's Engine (Debian package docker.io), Compose v2 (deploy/testbed/debian/plugins.sh)"
        )
    base = subprocess.run(["docker", "image", "inspect", "gpuwright-testbed-debian:12"], capture_output=True)
    debian = base.returncode == 0
    files = ["-f", "docker-compose.yml", *(["-f", "deploy/testbed/debian/compose.yaml"] if debian else [])]
    built = subprocess.run(["docker", "compose", *files, "build"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[-2000:]
    words = [sys.executable, "-m", "tests.proofs.testbed", *(["--debian"] if debian else [])]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
