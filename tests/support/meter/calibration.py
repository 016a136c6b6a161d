"""Two short pieces of work whose CPU time tells how quick this machine is now: limits are multiples of it.

Processors differ more in a loop than in starting processes, making files and asking a database, which is as much of
what the tests do. So a machine's factor is the geometric mean of both.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from tempfile import TemporaryDirectory

ADDITIONS, PARTS = 5_000_000, 10
STARTS, FILES, LUMPS = 3, 300, 2_000  # bare interpreters, small files, writes to a pipe
ROUNDS = 3  # of each: the least counts, since neighbours only add
# Of the two, on the machine in whose seconds limits are written. The work was never run there, but what it stands for
# was: a database, made and dropped, took .040 to .053 s where the loop took .24 to .30. On a newer machine, where the
# loop takes .09 and the work .030, it took .022 to .031. So the work takes 1.75 times as long on the older one, and
# 1.62 times as long at a loop of .25. By the mean the newer one is 2.3 times as quick as the older; collecting the
# same 11,277 tests was 2.3 times as quick, the same checks of the tree 2.3 to 2.6, and the cheap nine tenths of the
# same tests 2.2 times.
QUICK_LOOP_SECONDS, QUICK_WORK_SECONDS = 0.25, 0.049


@dataclass(frozen=True, slots=True)
class Calibration:
    """CPU seconds of the loop and of the work."""

    loop_seconds: float
    work_seconds: float

    @property
    def factor(self) -> float:
        """How many seconds here one second of the quick machine is; at least one.

        One that does this work quicker need not run tests quicker: where the mean was .58, `make test` took 220 CPU
        seconds, and 216 where it was .86. Memory and neighbours tell, which so little work does not see.
        """
        return max(1.0, sqrt(self.loop_seconds / QUICK_LOOP_SECONDS * self.work_seconds / QUICK_WORK_SECONDS))


def calibrate() -> Calibration:
    """About .2 s on the quick machine."""
    with TemporaryDirectory(prefix="gpuwright-work-") as folder:
        work = min(_work(Path(folder)) for _ in range(ROUNDS))
    return Calibration(min(_part_of_the_loop() for _ in range(ROUNDS)) * PARTS, work)


def _part_of_the_loop() -> float:
    began = time.thread_time()
    total = 0
    for number in range(ADDITIONS // PARTS):
        total += number
    return time.thread_time() - began


def _work(folder: Path) -> float:
    began = time.thread_time()
    children = sum(_start() for _ in range(STARTS))
    file = folder / "file"
    for _ in range(FILES):
        file.write_text("a line\n")
        file.stat()
        file.unlink()
    reader, writer = os.pipe()
    for _ in range(LUMPS):
        os.write(writer, b"." * 512)
        os.read(reader, 512)
    os.close(reader)
    os.close(writer)
    return time.thread_time() - began + children


def _start() -> float:
    """The CPU time of an interpreter that does nothing."""
    pid = os.posix_spawn(sys.executable, [sys.executable, "-I", "-S", "-c", ""], {})
    _, _, used = os.wait4(pid, 0)
    return used.ru_utime + used.ru_stime
