"""A node that kills itself with SIGKILL before or after the n-th line of its journal is written.

python -m tests.support.dying_agent FOLDER INCARNATION N before|after|never

It keeps FOLDER/assignment.json, with the simulated driver of FOLDER, and ends by itself, with 0, once that is so and
nothing else runs.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import msgspec

from agents.contract import Assignment
from agents.copies import Copy, Stage
from agents.journal import Journal
from agents.node import Node
from agents.state import Folder
from tests.support.nodes import around


def main(folder: Path, incarnation: int, die_at: int, when: str) -> int:
    written = 0
    write = Journal.write

    def dying(journal: Journal, copy: Copy) -> None:
        nonlocal written
        written += 1
        if (written, when) == (die_at, "before"):
            os.kill(os.getpid(), signal.SIGKILL)
        write(journal, copy)
        if (written, when) == (die_at, "after"):
            os.kill(os.getpid(), signal.SIGKILL)

    Journal.write = dying  # type: ignore[assignment,method-assign]
    node = Node(Folder(folder / "state"), around(folder), incarnation)
    assignment = msgspec.json.decode((folder / "assignment.json").read_bytes(), type=Assignment)
    node.heard(True)
    node.offer(assignment)
    node.start()
    until = time.monotonic() + 60
    while not _is(node, assignment):
        if time.monotonic() > until:
            stands = [f"{copy.id} {copy.stage} {copy.reason}" for copy in node.keeper.copies()]
            raise TimeoutError(f"{stands}, {node.keeper.held}")
        time.sleep(0.02)
    node.stop()
    return 0


def _is(node: Node, assignment: Assignment) -> bool:
    copies = node.keeper.copies()
    kept = sorted((copy.instance, copy.wanted.sm_percent, copy.stage) for copy in copies)
    return kept == sorted((one.id, one.sm_percent, Stage.READY) for one in assignment.instances)


if __name__ == "__main__":
    _, place, life, number, moment = sys.argv
    sys.exit(main(Path(place), int(life), int(number), moment))
