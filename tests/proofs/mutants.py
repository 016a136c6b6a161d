"""Deliberate bugs in a module, a seeded sample of them: the tests nearby find nearly each.

python -m tests.proofs.mutants MODULE[,MODULE...] [--sample N] [--seed N] TESTS...

A process is forked for each bug, and the tests run there until the first fails: those that are not slow and name the
module come first. Processes that the tests start end with the run. What survives is printed with its line.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.proofs.changed_code import Mutant, apply, change_started, draw
from tests.support.scratch import MEMORY

QUIET_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly")
LEAST_PATIENCE_SECONDS = 20.0  # after which a test hangs, which is a failure
PATIENCE_TIMES = 5.0  # of what the test takes without any mutant
NO_RUN = 70  # exit code of a process that could not run the tests, which says nothing of the mutant
LONGEST_END_SECONDS = 300.0
REAPING_SECONDS = 0.2
NOTES = "notes.json"
BECOME_REAPER = 36  # PR_SET_CHILD_SUBREAPER: processes that lose their parent become children of this one
Durations = Mapping[str, float]  # seconds of each test without any mutant


class Course:
    """A plugin of pytest: says which tests run first and how long each may take, and notes how it went."""

    def __init__(self, mutant: Mutant | None, durations: Durations, notes: Path) -> None:
        self._mutant = mutant
        self._durations = durations
        self._notes = notes
        self._failed = ""  # the test that did
        self._seconds: defaultdict[str, float] = defaultdict(float)  # of each test

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, not self._names_module(item)))
        for item in items if self._durations else ():
            seconds = max(LEAST_PATIENCE_SECONDS, PATIENCE_TIMES * self._durations.get(item.nodeid, 0.0))
            item.add_marker(pytest.mark.timeout(seconds), append=False)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed = report.nodeid
            self.note()  # what ends the tests may hang

    def note(self) -> None:
        self._notes.write_text(json.dumps((self._failed, self._seconds)))

    def _names_module(self, item: pytest.Item) -> bool:
        return self._mutant is not None and self._mutant.module in item.path.read_text()


def survives(mutant: Mutant, tests: Sequence[str], durations: Durations = {}) -> bool:  # noqa: B006
    """Returns whether all tests pass with the mutant, in a process of its own."""
    return not find_failed(mutant, tests, durations)


def find_failed(mutant: Mutant, tests: Sequence[str], durations: Durations) -> str:
    """Returns the first test that fails with the mutant; empty if none does."""
    return _try(mutant, tests, durations)[0]


def time_tests(tests: Sequence[str]) -> Durations:
    """Imports what the tests do, for all mutants at once, and returns how long each test takes without any mutant."""
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
        pytest.main(["--collect-only", *QUIET_OPTIONS, *tests])
    failed, durations = _try(None, tests, {})
    assert not failed, f"{failed} fails without any mutant"
    return durations


def _try(mutant: Mutant | None, tests: Sequence[str], durations: Durations) -> tuple[str, Durations]:
    """Returns which test failed, and the seconds of each, in a process and a folder that leave nothing behind."""
    ctypes.CDLL(None).prctl(BECOME_REAPER, 1)
    others = _children()
    with TemporaryDirectory(prefix="mutant-", dir=MEMORY if MEMORY.is_dir() else None) as name:
        folder = Path(name)
        folder.chmod(0o755)  # some servers run as another user
        child = os.fork()
        if child == 0:
            code = NO_RUN
            try:
                code = _run_tests(mutant, tests, durations, folder)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        code = _wait(child, others, 2 * sum(durations.values()) + LONGEST_END_SECONDS if durations else float("inf"))
        notes = folder / NOTES
        failed, seconds = json.loads(notes.read_text()) if notes.exists() else ("", {})
        if not failed and code != pytest.ExitCode.OK:
            raise RuntimeError(f"the tests could not be run with {mutant or 'no mutant'}: {' '.join(tests)}")
        return failed, seconds


def _wait(child: int, others: Collection[int], seconds: float) -> int:
    """Waits for the tests, ends whatever they have left, and returns the exit code."""
    handle = os.pidfd_open(child)
    ends = time.monotonic() + seconds
    try:
        while not select.select([handle], [], [], REAPING_SECONDS)[0]:
            _reap(_children() - {child, *others}, os.WNOHANG)
            if time.monotonic() > ends:
                os.kill(child, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(handle)
    while left := _children() - set(others):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        _reap(left, 0)
    return code


def _children() -> set[int]:
    return {int(pid) for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()}


def _reap(pids: Collection[int], options: int) -> None:
    for pid in pids:
        with suppress(ChildProcessError):
            os.waitpid(pid, options)


def _run_tests(mutant: Mutant | None, tests: Sequence[str], durations: Durations, folder: Path) -> int:
    os.setsid()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    if mutant is not None:
        apply(mutant)
        change_started(mutant, folder)
    course = Course(mutant, durations, folder / NOTES)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):  # noqa: PTH123
        code = pytest.main(["-x", *QUIET_OPTIONS, f"--basetemp={folder / 't'}", *tests], plugins=[course])
    course.note()
    return code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", type=lambda words: words.split(","))
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mutants = draw(args.modules, args.sample, args.seed)
    durations = time_tests(args.tests)
    survivors = 0
    for mutant in mutants:
        if survives(mutant, args.tests, durations):
            survivors += 1
            print(f"survived: {mutant}", flush=True)
    print(f"{len(mutants) - survivors} of {len(mutants)} mutants found")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
