"""The parent: gives files to workers, hands on what they report, and replaces a worker that dies."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from agents.runtime import proc
from tests.support.workers.files import longest_first, remember
from tests.support.workers.messages import Began, Ended, Finished, Free, Interrupted, Message, Warned
from tests.support.workers.worker import Worker, find_folders

FORK = get_context("fork")
LOOK_SECONDS = 0.2
END_SECONDS = 120.0  # for the fixtures of a worker that has to end
SLACK = 1.5  # a hanging test that its own worker cannot end is ended later than one that it can


@dataclass(eq=False)
class Hired:
    """A worker as its parent sees it."""

    number: int
    process: ForkProcess
    line: Connection
    given: list[int] = field(default_factory=list)  # tests that it has not finished
    test: int | None = None  # that it runs
    hangs_at: float = float("inf")
    last: int | None = None  # test that it finished
    has_ended: bool = False


class Crew:
    """Runs every collected test once, in the order of files, and then has no worker left."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._count = session, count
        self._files = deque(longest_first(session.config, session.items))
        self._hired: list[Hired] = []
        self._finished: Counter[int] = Counter()
        self._seconds: dict[str, float] = {}

    def run(self) -> None:
        session = self._session
        if reporter := session.config.pluginmanager.get_plugin("terminalreporter"):
            reporter.showfspath = False  # files run at the same time: a line of each would begin again and again
        find_folders(session.config).getbasetemp()  # made once, emptied: each worker has a folder in it
        try:
            for number in range(self._count):
                self._hire(number)
            while self._hired:
                self._look()
        except BaseException:
            self._end_all()
            raise
        finally:
            remember(session.config, self._seconds)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        if wrong := [item.nodeid for place, item in enumerate(session.items) if self._finished[place] != 1]:
            raise session.Failed(f"{len(wrong)} tests were not run once: {', '.join(wrong[:5])}")

    def _hire(self, number: int) -> None:
        ours, theirs = FORK.Pipe()
        worker = Worker(self._session, number, self._count, theirs)
        process = FORK.Process(target=worker.run, args=([hired.line for hired in self._hired] + [ours],))
        process.start()
        theirs.close()
        self._hired.append(Hired(number, process, ours))

    def _look(self) -> None:
        by_line = {hired.line: hired for hired in self._hired if not hired.line.closed}
        for line in wait([*by_line], LOOK_SECONDS):
            if isinstance(line, Connection):
                self._hear(by_line[line])
        now = time.monotonic()
        for hired in list(self._hired):
            if now > hired.hangs_at:
                hired.process.kill()
            if not hired.process.is_alive():
                self._bury(hired)

    def _hear(self, hired: Hired) -> None:
        try:
            message: Message = hired.line.recv()
        except (EOFError, OSError):
            hired.line.close()
            return
        match message:
            case Free():
                hired.given = [] if self._is_stopping() or not self._files else self._files.popleft()
                self._order(hired, hired.given)
            case Began(test, patience):
                hired.test, hired.hangs_at = test, time.monotonic() + SLACK * patience
            case Finished(test, reports):
                hired.test, hired.last, hired.hangs_at = None, test, float("inf")
                hired.given.remove(test)
                self._tell(test, reports)
                if self._is_stopping():
                    for other in self._hired:
                        self._order(other, [])
            case Warned(recorded):
                self._session.config.hook.pytest_warning_recorded.call_historic(kwargs=recorded.arguments())
            case Interrupted():
                raise KeyboardInterrupt
            case Ended(reports):
                hired.has_ended = True
                for report in reports:
                    self._log(report)

    def _order(self, hired: Hired, file: list[int]) -> None:
        """An empty order lets the worker end before its next test."""
        with suppress(OSError):  # a dead one may have said more, which we shall read
            hired.line.send(file)

    def _is_stopping(self) -> bool:
        return bool(self._session.shouldfail or self._session.shouldstop)

    def _tell(self, test: int, reports: list[dict[str, object]]) -> None:
        """As if the test had run here."""
        item = self._session.items[test]
        self._finished[test] += 1
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in reports:
            self._log(report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _log(self, data: dict[str, object]) -> None:
        config = self._session.config
        report = config.hook.pytest_report_from_serializable(config=config, data=data)
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        config.hook.pytest_runtest_logreport(report=report)

    def _bury(self, hired: Hired) -> None:
        """Reads what a worker said before it ended; if it was killed, its test fails and others take the rest."""
        with hired.line:
            while not hired.line.closed and hired.line.poll():
                self._hear(hired)
        hired.process.join()
        self._hired.remove(hired)
        if hired.has_ended:
            return
        kill_session(hired.process.pid or 0)
        tests = [place for place in (hired.test, *hired.given, hired.last) if place is not None]
        if not tests:
            raise RuntimeError("a worker could not begin")
        test = tests[0]
        self._fail(test, hired)
        if rest := [place for place in hired.given if place != test]:
            self._files.appendleft(rest)
        if self._files and not self._is_stopping():
            self._hire(hired.number)

    def _fail(self, test: int, hired: Hired) -> None:
        code, name = hired.process.exitcode or 0, self._session.items[test].nodeid
        cause = f"signal {-code}" if code < 0 else f"exit status {code}"
        when = "in" if hired.test is not None else "after" if test == hired.last else "before"
        report = pytest.TestReport(
            nodeid=name,
            location=self._session.items[test].location,
            keywords={},
            outcome="failed",
            longrepr=f"worker died with {cause} {when} test {name}",
            when="call",
        )
        if test == hired.last:
            self._session.config.hook.pytest_runtest_logreport(report=report)
        else:
            data = self._session.config.hook.pytest_report_to_serializable(config=self._session.config, report=report)
            self._tell(test, [data])

    def _end_all(self) -> None:
        """Lets every worker tear down its fixtures; one that is too late is killed with all that it started."""
        deadline = time.monotonic() + END_SECONDS
        try:
            for hired in self._hired:
                os.kill(hired.process.pid or 0, signal.SIGINT)
            for hired in self._hired:
                while hired.process.is_alive() and time.monotonic() < deadline:
                    if not hired.line.closed and hired.line.poll(LOOK_SECONDS):
                        _drain(hired.line)
                    hired.process.join(LOOK_SECONDS)
        finally:
            for hired in self._hired:
                if hired.process.is_alive():
                    kill_session(hired.process.pid or 0)
                    hired.process.join()


def _drain(line: Connection) -> None:
    try:
        line.recv()
    except (EOFError, OSError):
        line.close()


def kill_session(leader: int) -> None:
    """Ends all processes of a session, the leader included."""
    for path in Path("/proc").glob("[0-9]*"):
        found = proc.read_process(int(path.name))
        if found and found.session == leader:
            with suppress(ProcessLookupError):
                os.kill(found.pid, signal.SIGKILL)
