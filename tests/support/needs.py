"""What a test needs of its machine. Without it the test is skipped; in CI, which installs all of it, the test fails.

`@pytest.mark.needs("promtool", "prometheus")` names a program and its Debian package.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

# Programs of Python packages first: they have the version that is pinned.
FOLDERS = (str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin")


def need(program: str | Path, package: str) -> str:
    """Returns the path of a program that the Debian package brings, or a path itself."""
    found = shutil.which(program, path=os.pathsep.join(FOLDERS))
    if found is None:
        skip_unless_ci(f"{program} is not installed (Debian package {package})")
    return found


def need_module(name: str, package: str) -> None:
    if find_spec(name) is None:
        skip_unless_ci(f"the Python package {package} is not installed (pip install {package})")


def skip_unless_ci(reason: str) -> NoReturn:
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
