"""Installs Ray for tests, into an environment of its own: `python -m tests.ray_serve.installed`, or `make ray`.

Ray is no dependency of gpuwright, which asks it by REST alone; its packages would also bound the versions of ours.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

REQUIREMENTS = Path(__file__).with_name("requirements.txt")  # uv pip compile --universal, of ray[serve]
ROOT = Path(__file__).parents[2]


def find_ray() -> Path | None:
    """Returns the program `ray` of these requirements; None if they are not installed."""
    program = _find_folder() / "bin" / "ray"
    return program if (program.parents[1] / "done").exists() else None


def install() -> Path:
    folder = _find_folder()
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        uv = str(ROOT / ".venv" / "tools" / "bin" / "uv")
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
        words = [uv, "pip", "install", "--quiet", "--require-hashes", "--python", str(folder / "bin" / "python")]
        subprocess.run([*words, "-r", str(REQUIREMENTS)], check=True)
        (folder / "done").touch()
    return folder


def _find_folder() -> Path:
    return Path.home() / ".cache" / "gpuwright-ray" / sha256(REQUIREMENTS.read_bytes()).hexdigest()[:16]


if __name__ == "__main__":
    sys.stdout.write(f"Ray is in {install()}\n")
