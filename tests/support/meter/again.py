"""Measures dear tests again, alone and as `make test` runs them: a limit that one run exceeds may be noise.

Each runs twice in its process, and the second counts: the first to run pays for modules and compiled loops that it
shares with others. This module is the plugin of pytest that repeats them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.support.meter.clock import Cost

RUNS = 2
ROUND = "meter_round"


def measure_again(names: list[str], root: Path) -> list[dict[str, float]]:
    """Returns the quick seconds of each test in some more runs. One that the fast form leaves out is not in them.

    Asked for by function: a case that the fast form does not have would end the run.
    """
    names = list(dict.fromkeys(name.partition("[")[0] for name in names))
    return [_run(names, root) for _ in range(RUNS)]


@pytest.hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    metafunc.fixturenames.append(ROUND)
    metafunc.parametrize(ROUND, [1, 2], ids=["first", "second"], indirect=True)


@pytest.fixture(name=ROUND)
def _round(request: pytest.FixtureRequest) -> object:
    return request.param


def _run(names: list[str], root: Path) -> dict[str, float]:
    with TemporaryDirectory(prefix="gpuwright-again-") as folder:
        file = Path(folder, "costs.jsonl")
        words = ["-q", "-p", "no:cacheprovider", "-p", __name__, f"--basetemp={folder}/t", f"--meter={file}", *names]
        environment = {**os.environ, "GPUWRIGHT_FAST": "1"}
        subprocess.run([sys.executable, "-m", "pytest", *words], cwd=root, env=environment, stdout=subprocess.DEVNULL)
        costs = [Cost(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        return {name: cost.quick_seconds for cost in costs if (name := _name_of_second(cost.name))}


def _name_of_second(name: str) -> str:
    """Without the round; nothing for a first one. A test that is a class of unittest runs once."""
    if name.endswith("[second]"):
        return name.removesuffix("[second]")
    if name.endswith("-second]"):
        return name.removesuffix("-second]") + "]"
    return "" if name.endswith(("[first]", "-first]")) else name
