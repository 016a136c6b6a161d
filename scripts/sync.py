"""Installs one hashed requirement set and the project itself into .venv; does nothing when nothing changed.

Usage: python3.11 scripts/sync.py up | dev
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TOOLS = VENV / "tools"  # apart, so that nothing of ours imports by accident what only they brought
PROJECTS = {"up": (".",), "dev": (".", "lab")}  # what is installed from here
REQUIRED = {"up": ("up",), "dev": ("dev", "lab")}  # files of requirements/
COVERED_BY = {"up": ("up", "dev"), "dev": ("dev",)}  # dev holds all of up, at the same versions


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or arguments[0] not in COVERED_BY:
        print(f"usage: sync.py {' | '.join(COVERED_BY)}", file=sys.stderr)
        return 2
    wanted = arguments[0]
    if is_current(wanted):
        return 0
    with (ROOT / ".venv.lock").open("w") as lock:  # two `make`s at once: the second waits
        fcntl.flock(lock, fcntl.LOCK_EX)
        if is_current(wanted):
            return 0
        return _install(wanted)


def is_current(wanted: str) -> bool:
    return PYTHON.exists() and any(
        stamp(name).exists() and stamp(name).read_text() == fingerprint(name) for name in COVERED_BY[wanted]
    )


def _install(wanted: str) -> int:
    print(f"installing requirements/{wanted}.txt into .venv", file=sys.stderr)
    try:
        if not PYTHON.exists():
            _make_venv()
        pip = _pip(wanted)
        _run(*pip, "install", *QUIET, "--upgrade", "--target", TOOLS, "--require-hashes", "-r", _requirements("tools"))
        files = [word for name in REQUIRED[wanted] for word in ("-r", str(_requirements(name)))]
        requirements = ("--require-hashes", *files)
        projects = PROJECTS[wanted]
        own = ("--no-deps", "--no-build-isolation", *(word for path in projects for word in ("-e", str(ROOT / path))))
        for what in (requirements, own):
            if not _uv_installs(what, pip):
                subprocess.run([*pip, "install", *QUIET, *what], env=os.environ | BUILDING, check=True)
    except subprocess.CalledProcessError as failed:
        print(f"install failed: {failed}", file=sys.stderr)
        return 1
    stamp(wanted).write_text(fingerprint(wanted))
    return 0


QUIET = ("--quiet", "--disable-pip-version-check")
BUILDING = {"PYTHONPATH": str(TOOLS)}  # hatchling builds the project itself


def _make_venv() -> None:
    if sys.version_info < (3, 11):  # noqa: UP036 (it runs before anything checks the version)
        raise SystemExit(
            f"Python 3.11 or newer is needed, {sys.version.split()[0]} was found; try PYTHON=/path/to/python3.11"
        )
    if subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", VENV], check=False).returncode:
        _no_venv()


def _pip(wanted: str) -> list[str | Path]:
    """Returns pip of the interpreter that runs us: to give .venv its own takes seconds. Tests need that, too."""
    version = importlib.metadata.version("pip") if importlib.util.find_spec("pip") else "0"
    if wanted == "up" and [int(part) for part in re.findall(r"\d+", version)] >= [22, 3]:  # the first with --python
        return [sys.executable, "-m", "pip", "--python", PYTHON]
    if not any(VENV.glob("lib/python*/site-packages/pip")):
        ensured: list[str | Path] = [PYTHON, "-m", "ensurepip", "--default-pip"]
        if subprocess.run(ensured, stdout=subprocess.DEVNULL, check=False).returncode:
            _no_venv()
    return [PYTHON, "-m", "pip"]


def _no_venv() -> NoReturn:
    shutil.rmtree(VENV, ignore_errors=True)
    raise SystemExit("no virtual environment could be made; on Debian: apt-get install python3-venv")


def _uv_installs(what: tuple[str, ...], pip: list[str | Path]) -> bool:
    """Three to ten times as fast as pip, and not needed: pip does it where uv cannot."""
    environment = os.environ | BUILDING | {"VIRTUAL_ENV": str(VENV)}
    if not any(name in environment for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_CONFIG_FILE")):
        environment |= _index_of(pip)
    try:
        done = subprocess.run(
            [TOOLS / "bin" / "uv", "pip", "install", "--quiet", *what],
            env=environment, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    except OSError:  # no uv for this machine
        return False
    if done.returncode:
        print(f"uv could not install ({next(iter(done.stderr.splitlines()), '')}); pip tries", file=sys.stderr)
    return done.returncode == 0


def _index_of(pip: list[str | Path]) -> dict[str, str]:
    """uv reads neither pip.conf nor PIP_INDEX_URL: without this it would wait for an index that a firewall blocks."""
    listed = subprocess.run([*pip, "config", "list"], capture_output=True, text=True, check=False).stdout
    found: dict[str, str] = {}
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".index-url"):
            found["UV_DEFAULT_INDEX"] = value.strip("'")
        elif key.endswith(".cert"):
            found["SSL_CERT_FILE"] = value.strip("'")
    return found


def _run(*command: str | Path) -> None:
    subprocess.run(command, check=True)


def _requirements(name: str) -> Path:
    return ROOT / "requirements" / f"{name}.txt"


def stamp(name: str) -> Path:
    return VENV / f".synced-{name}"


def fingerprint(name: str) -> str:
    """Returns a hash of content, not of times: fresh clones and switched branches have new times and old content."""
    digest = hashlib.sha256(sys.version.encode())
    projects = [ROOT / path / "pyproject.toml" for path in PROJECTS[name]]
    for path in (*projects, *map(_requirements, ("tools", *REQUIRED[name]))):
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
