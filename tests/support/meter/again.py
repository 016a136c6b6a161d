"""Measures dear tests again, alone and as `make test` runs them: a limit that one run exceeds may be noise."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.meter.clock import Cost

RUNS = 2


def measure_again(names: list[str], root: Path) -> list[dict[str, float]]:
    """Returns the quick seconds of each test in some more runs. One that the fast form leaves out is not in them.

    Asked for by function: a case that the fast form does not have would end the run.
    """
    names = list(dict.fromkeys(name.partition("[")[0] for name in names))
    return [_run(names, root) for _ in range(RUNS)]


def _run(names: list[str], root: Path) -> dict[str, float]:
    with TemporaryDirectory(prefix="gpuwright-again-") as folder:
        file = Path(folder, "costs.jsonl")
        words = ["-q", "-p", "no:cacheprovider", f"--basetemp={folder}/t", f"--meter={file}", *names]
        environment = {**os.environ, "GPUWRIGHT_FAST": "1"}
        subprocess.run([sys.executable, "-m", "pytest", *words], cwd=root, env=environment, stdout=subprocess.DEVNULL)
        costs = [Cost(**json.loads(line)) for line in file.read_text().splitlines()] if file.exists() else []
        return {cost.name: cost.quick_seconds for cost in costs}
