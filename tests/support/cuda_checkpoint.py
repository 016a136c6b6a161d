"""A program with the grammar of NVIDIA's cuda-checkpoint, and none of its powers: states in files, faults on request.

Usage: python cuda_checkpoint.py FOLDER --get-state --pid N
       python cuda_checkpoint.py FOLDER --action lock|checkpoint|restore|unlock --pid N [--timeout MS]

FOLDER/N holds the state; FOLDER/faults holds lines `ACTION KIND`: `refuses` fails and changes nothing, `breaks` fails
and leaves the process failed, `hangs` never answers, `lies` answers what is no state. FOLDER/calls lists the calls.
"""

# ruff: noqa: T201  a program speaks by printing

from __future__ import annotations

import sys
import time
from pathlib import Path

STEPS = {
    "lock": ("running", "locked"),
    "checkpoint": ("locked", "checkpointed"),
    "restore": ("checkpointed", "locked"),
    "unlock": ("locked", "running"),
}


def main(folder: Path, arguments: list[str]) -> int:
    with (folder / "calls").open("a") as calls:
        print(*arguments, file=calls)
    options = dict(zip(arguments[::2], arguments[1::2], strict=False))
    if arguments[0] == "--get-state":
        options = {"--action": "get-state", "--pid": arguments[2]}
    action, process = options["--action"], folder / options["--pid"]
    state = process.read_text() if process.exists() else "running"
    faults = dict(line.split() for line in (folder / "faults").read_text().splitlines())
    match faults.get(action):
        case "hangs":
            time.sleep(600)
        case "lies":
            print("marvellous")
            return 0
        case "breaks":
            process.write_text("failed")
            print("an internal error occurred", file=sys.stderr)
            return 1
        case "refuses":
            print("the operation timed out", file=sys.stderr)
            return 1
    if action == "get-state":
        print(state)
        return 0
    before, after = STEPS[action]
    if state != before:
        print(f"the process is {state}", file=sys.stderr)
        return 1
    process.write_text(after)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
