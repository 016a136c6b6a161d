"""The agent's program, which kills itself before or after a line of its journal is on disk.

python -m tests.proofs.mortal ORDERS CONTACT_SECONDS agent run ...

ORDERS holds `3 before` or `3 after`: at the third line that is written once it is there the program dies, and the order
with it, so that the next one lives.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from agents.control import contact
from agents.keeper.copies import NodeCopy
from agents.keeper.journal import Journal
from cli.main import main as run


def main(orders: Path, contact_seconds: float, words: list[str]) -> int:
    contact.CONTACT_SECONDS = contact_seconds
    written = 0
    write = Journal.write

    def die() -> None:
        orders.unlink()
        os.kill(os.getpid(), signal.SIGKILL)

    def dying(journal: Journal, copy: NodeCopy) -> None:
        nonlocal written
        order = _order(orders)
        written += bool(order)
        if order == (written, "before"):
            die()
        write(journal, copy)
        if order == (written, "after"):
            die()

    Journal.write = dying  # type: ignore[assignment,method-assign]
    return run(words)


def _order(orders: Path) -> tuple[int, str] | None:
    try:
        number, when = orders.read_text().split()
    except (FileNotFoundError, ValueError):
        return None
    return int(number), when


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
