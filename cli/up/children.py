"""Child processes of `gpuwright up`: they end with it, however it ends, and start again when they die."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

END_SECONDS = 40.0
SOONEST_SECONDS, LATEST_SECONDS = 1.0, 60.0  # from a death to the next start; doubled at each
MOST_BYTES, MOST_CHARACTERS = 4096, 400  # of a log, for its last line
SOUND_SECONDS = 60.0  # after a life of this length the next pause is the shortest

Say = Callable[[str], None]


@dataclass(slots=True)
class _Child:
    name: str
    command: Sequence[str]
    log: Path
    environment: Mapping[str, str]
    stdin: str
    process: subprocess.Popen[bytes]
    began: float


class Children:
    """Processes that end with us, in the reverse order of their start."""

    def __init__(self, say: Say, soonest_seconds: float = SOONEST_SECONDS) -> None:
        self._say = say
        self._soonest_seconds = soonest_seconds
        self._running: list[_Child] = []
        self._ending = threading.Event()
        self._turn = threading.Lock()  # no child is restarted once all are being ended

    def start(
        self,
        name: str,
        module: Sequence[str],
        log: Path,
        environment: Mapping[str, str],
        stdin: str = "",
        *,
        at_our_death: signal.Signals = signal.SIGKILL,
    ) -> None:
        """Starts a module as its own process; its output goes to its log.

        It gets `at_our_death` if we are killed. The database is gone then, too, and a process that ends by itself would
        wait for it: only one with processes of its own to end is asked to.
        """
        from simulation.real.ending import bind_command

        command = bind_command([sys.executable, "-m", *module], at_our_death)
        process = _launch(command, log, environment, stdin)
        child = _Child(name, command, log, environment, stdin, process, time.monotonic())
        self._running.append(child)
        threading.Thread(target=self._keep, args=(child,), daemon=True).start()

    def stop(self) -> None:
        """Ends all together, and kills what does not end in time."""
        from simulation.real.ending import end_process

        with self._turn:
            self._ending.set()
        processes = [child.process for child in reversed(self._running)]
        for process in processes:
            process.terminate()
        until = time.monotonic() + END_SECONDS
        for process in processes:
            end_process(process, max(0.1, until - time.monotonic()))

    def _keep(self, child: _Child) -> None:
        """Restarts the child; the pause doubles while it keeps dying early."""
        pause = self._soonest_seconds
        while True:
            code = child.process.wait()
            if self._ending.is_set():
                return
            if time.monotonic() - child.began >= SOUND_SECONDS:
                pause = self._soonest_seconds
            said = _last_line(child.log) if code > 0 else ""  # one that was killed had no time to say why
            why = f": {said}" if said else ""
            self._say(f"{child.name} ended unexpectedly ({code}) and starts again in {pause:g} s{why}; see {child.log}")
            self._ending.wait(pause)
            pause = min(2 * pause, LATEST_SECONDS)
            with self._turn:
                if self._ending.is_set():
                    return
                child.process = _launch(child.command, child.log, child.environment, child.stdin)
                child.began = time.monotonic()


def _last_line(log: Path) -> str:
    """Returns the last line of a log, which says why a process ended; shortened to a line of a terminal or two."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - MOST_BYTES))
            lines = file.read().decode(errors="replace").strip().splitlines()
    except OSError:
        return ""
    return lines[-1].strip()[:MOST_CHARACTERS] if lines else ""


def _launch(command: Sequence[str], log: Path, environment: Mapping[str, str], stdin: str) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            env={**os.environ, **environment},
            start_new_session=True,  # Ctrl-C is ours to hand on
        )
    assert process.stdin
    with contextlib.suppress(BrokenPipeError), process.stdin:
        process.stdin.write(stdin.encode())
    return process
