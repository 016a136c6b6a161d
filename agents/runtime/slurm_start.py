"""The first step of a copy that Slurm has started: checks what Slurm gave it, then becomes the program.

Slurm keeps a job's script and environment, so neither holds anything of the copy: its command and its environment,
with any secret, are in a file of the agent's, which is read once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec

from agents.admission.programs import open_program
from agents.runtime.launcher import main as become
from agents.seams.mps_variables import SM_PERCENT_VARIABLE

_GPUS = "SLURM_JOB_GPUS"
REFUSED = 78  # EX_CONFIG


class SlurmStart(msgspec.Struct, frozen=True):
    """A command to start, and what Slurm must have given it."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    oom_score: int
    user: str | None  # whom a user's own command runs as, - for this user; None for a template's
    gpus: str  # their indexes on Slurm's node
    percentage: int | None  # that Slurm's plugin of MPS sets; None: it divides no GPU


def find_mismatch(start: SlurmStart, given: Mapping[str, str]) -> str:
    """Returns how what Slurm gave differs from what was planned; empty if it does not."""
    if given.get(_GPUS, start.gpus) != start.gpus:
        return f"Slurm gave GPU {given[_GPUS]} of its node, and {start.gpus} was planned"
    if start.percentage is not None and given.get(SM_PERCENT_VARIABLE) != str(start.percentage):
        return f"Slurm gave {given.get(SM_PERCENT_VARIABLE, 'no')} % of the GPU, and {start.percentage} % was planned"
    return ""


def main(path: str) -> int:
    file = Path(path)
    try:
        start = msgspec.json.decode(file.read_bytes(), type=SlurmStart)
        file.unlink()
    except FileNotFoundError:
        sys.stderr.write("the agent has withdrawn this copy\n")
        return REFUSED
    if mismatch := find_mismatch(start, os.environ):
        sys.stderr.write(f"{mismatch}\n")
        return REFUSED
    slurm = {name: value for name, value in os.environ.items() if name.startswith("SLURM")}
    os.environ.clear()
    os.environ.update(slurm | start.environment)
    report, score = str(os.dup(2)), str(start.oom_score)
    if start.user is None:
        return become(report, "", "", score, "", "", *start.argv)
    with ExitStack() as opened:
        program = opened.enter_context(open_program(start.argv))
        return become(report, "", "", score, start.user, str(program.descriptor), *program.argv)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
