"""Jobs of a user's own for tests: the examples of training, and small programs, under an operator's template."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from agents.contract.assignments import AssignedInstance, JobTerms
from agents.keeper.job_files import JobFiles, job_files
from agents.node.node import LocalNode
from tests.support.nodes import Machine, machine, running

EXAMPLES = Path(__file__).parents[2] / "examples" / "training"
TRAINER = """\
argv: ["{python}", %s, "--steps={steps}", "--save-seconds={save}", "--pause-seconds={pause}"]
args:
  steps: {type: integer, min: 1, max: 1000000000}
  save: {type: number, min: 0, max: 3600, default: 0.05}
  pause: {type: number, min: 0, max: 60, default: 0}
usesGpu: false
checkpointSignal: SIGTERM
"""


def trainer(steps: int, **fields: Any) -> AssignedInstance:
    """An instance of the job lab/tune, which trains so many steps."""
    known = AssignedInstance(
        "tune-1", 0, "lab", job="tune", template="trainer", args={"steps": steps}, sm_percent=30, memory_gib=1,
        terms=JobTerms(units=steps),
    )  # fmt: skip
    return msgspec.structs.replace(known, **fields)


def program(folder: Path, text: str, template: str = "") -> str:
    """Writes a small Python program; returns the template that runs it."""
    path = folder / "job.py"
    path.write_text(text)
    return f"argv: ['{{python}}', -u, {path}]\nusesGpu: false\n{template}"


@contextmanager
def training_node(folder: Path, template: str) -> Iterator[Machine]:
    """A machine whose node has the template `trainer`."""
    with machine(folder) as made:
        made.template("trainer", template)
        yield made


@contextmanager
def agent_on(made: Machine, incarnation: int = 1) -> Iterator[LocalNode]:
    with running(made, incarnation=incarnation, checkpoints=made.folder / "checkpoints") as node:
        yield node


def files_of(made: Machine, instance: AssignedInstance) -> JobFiles:
    return job_files(made.folder / "checkpoints", instance)


def straight_run(script: str, steps: int, folder: Path) -> Path:
    """Trains so many steps without a stop; returns the folder of its save."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, str(EXAMPLES / script), f"--steps={steps}", "--save-seconds=3600"],
        env={"GPUWRIGHT_CHECKPOINTS": str(folder), "PATH": "/usr/bin:/bin"}, check=True, capture_output=True,
    )  # fmt: skip
    return folder
