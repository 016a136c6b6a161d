"""Runs pytest with our plugins on a few files of tests, as a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
CONFTEST = 'pytest_plugins = ["tests.support.workers.plugin", "tests.support.meter.plugin"]\n'
SETTINGS = "[pytest]\nmarkers = slow\ntestpaths = ."


@contextmanager
def start_run(folder: Path, files: dict[str, str], *words: str) -> Iterator[subprocess.Popen[str]]:
    """Yields pytest, which runs on these files alone."""
    for name, text in {"conftest.py": CONFTEST, "pytest.ini": SETTINGS, **files}.items():
        (folder / name).write_text(text)
    own = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "pytest_timeout"}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", f"--basetemp={folder}/t", "-ra", *words],
        cwd=folder,
        env={**os.environ, **own, "COLUMNS": "300"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def finish_run(folder: Path, files: dict[str, str], *words: str) -> tuple[int, str]:
    """Returns the exit status of a run, and what it printed."""
    with start_run(folder, files, *words) as process:
        printed, _ = process.communicate()
    return process.returncode, printed
