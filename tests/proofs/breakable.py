"""gpuwright-serve that a test can break: a file of its GPU, read at each start, says how this start fails.

    python breakable.py FILE [words of gpuwright-serve]

A crash is noted in FILE.ended, a time a line.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
import time
from pathlib import Path

from agents.programs.serve.main import main

CRASH_SECONDS = 2.0
WORDS = {"never_warm": ["--start-seconds=3600"], "out_of_memory": ["--memory-gib=1000"]}


def _crash(file: Path) -> None:
    with (file.parent / f"{file.name}.ended").open("a") as ended:
        ended.write(f"{time.time()}\n")
    os.write(2, b"the weights are broken\n")
    os._exit(3)


def _word(words: list[str], name: str) -> str:
    return next(word.removeprefix(f"--{name}=") for word in words if word.startswith(f"--{name}="))


if __name__ == "__main__":
    place, *words = sys.argv[1:]
    broken = Path(place)
    how = broken.read_text() if broken.exists() else ""
    if how == "port_taken":
        stranger = socket.create_server((_word(words, "host"), int(_word(words, "port"))))
    if how == "crashes":
        timer = threading.Timer(CRASH_SECONDS, _crash, [broken])
        timer.daemon = True
        timer.start()
    sys.exit(main([*words, *WORDS.get(how, [])]))
