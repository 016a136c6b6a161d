"""Wheels of this code or another, and environments in which one is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path


def build_wheel(code: Path, folder: Path) -> Path:
    """Builds the wheel of this code into a folder."""
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=code, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def install_wheel(folder: Path, wheel: Path, *distributions: str) -> Path:
    """Returns `gpuwright` of a virtual environment that holds the wheel and these distributions, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", str(wheel)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in distributions:  # copied from this environment: a test needs no network
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), packages / file)
    return folder / "bin" / "gpuwright"
