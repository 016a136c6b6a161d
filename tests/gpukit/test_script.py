"""What scripts/gpu_kit.sh asks of Docker; the program here notes what it is asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from scripts.house.tree import ROOT

NOTES = '#!/bin/sh\necho "$@" >>"$NOTED"\n'


def ask_docker(folder: Path, *words: str) -> tuple[str, str]:
    """Returns how the image is built, and how it is run."""
    docker, noted = folder / "bin" / "docker", folder / "noted"
    docker.parent.mkdir()
    docker.write_text(NOTES)
    docker.chmod(0o755)
    environment = {**os.environ, "PATH": f"{docker.parent}:{os.environ['PATH']}", "NOTED": str(noted)}
    subprocess.run([ROOT / "scripts" / "gpu_kit.sh", "docker", *words], cwd=folder, env=environment, check=True)
    built, ran = noted.read_text().splitlines()
    return built, ran


@pytest.mark.slow
def test_the_container_has_no_network_and_no_right_that_its_caller_has_not(tmp_path: Path) -> None:
    built, ran = ask_docker(tmp_path, "out", "--short")
    assert built.startswith("build --target kit --build-arg COMMIT=") and built.endswith(str(ROOT))
    assert " --rm --gpus all --network none " in ran and f" --user {os.getuid()}:{os.getgid()} " in ran
    assert ran.endswith(f" --volume {tmp_path}/out:/out gpuwright-kit --short") and (tmp_path / "out").is_dir()
    assert "--cap-add" not in ran and "--privileged" not in ran


@pytest.mark.slow
def test_only_an_owner_who_allows_to_change_settings_runs_it_as_root(tmp_path: Path) -> None:
    assert " --user 0:0 --cap-add SYS_ADMIN " in ask_docker(tmp_path, "out", "--change-settings")[1]
