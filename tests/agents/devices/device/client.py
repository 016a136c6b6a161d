"""A process that plays a CUDA client for the conformance suite, and the handle that a stage holds of it.

Run as a program it attaches with the environment it finds, says on stdout what came of it, and obeys its stdin:
`hold GIB`, answered with `ok` or the code of the refusal; `failed`, answered with `yes` or `no`. When its context is
gone it stays, as a process does that is stuck in its clean-up; at the end of stdin it exits.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from typing import IO

from agents.devices.simulated.client import attach
from agents.devices.simulated.refusals import CudaRefusal
from tests.support.patience import patience


class ProcessClient:
    """A client that is a process of its own, for stages with real sockets."""

    def __init__(self, environment: Mapping[str, str], memory_gib: float) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.agents.devices.device.client", str(memory_gib)],
            env=dict(os.environ) | dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.pid = self._process.pid
        word, _, number = self._answer().partition(" ")
        self.sm_count = int(number) if word == "attached" else None
        self.refused = int(number) if word == "refused" else None

    def failed(self) -> bool:
        return self._process.poll() is not None or self._ask("failed") == "yes"

    def hold(self, memory_gib: float) -> bool:
        return self._ask(f"hold {memory_gib}") == "ok"

    def end(self) -> None:
        if self._process.poll() is None:
            self._stdin.close()
        self._process.wait(patience())
        if self._process.stdout is not None:
            self._process.stdout.close()

    @property
    def _stdin(self) -> IO[str]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _ask(self, words: str) -> str:
        self._stdin.write(words + "\n")
        self._stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def main() -> None:
    def say(words: str) -> None:
        sys.stdout.write(words + "\n")
        sys.stdout.flush()

    failures: list[str] = []
    try:
        client = attach(os.environ, float(sys.argv[1]), failures.append)
    except CudaRefusal as refused:
        say(f"refused {refused.code}")
        sys.exit(1)
    say("without MPS" if client is None else f"attached {client.sm_count}")
    for line in sys.stdin:
        word, _, number = line.partition(" ")
        if word.strip() == "failed":
            say("yes" if failures else "no")
            continue
        try:
            if client is not None:
                client.hold(float(number))
            say("ok")
        except CudaRefusal as refused:
            say(str(refused.code))


if __name__ == "__main__":
    main()
