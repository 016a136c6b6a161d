"""A worker: a fork of the process that collected, with a folder, ports and session fixtures of its own."""

from __future__ import annotations

import atexit
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from types import FrameType

import pytest
from _pytest._io import TerminalWriter
from _pytest.junitxml import LogXML
from _pytest.runner import CallInfo
from _pytest.terminal import TerminalReporter

from tests.support.ports import SHARE
from tests.support.workers.messages import (
    Began,
    Ended,
    Finished,
    Free,
    Interrupted,
    Message,
    RecordedWarning,
    Report,
    Warned,
)
from tests.support.workers.patience import find_patience


class Worker:
    """Runs the files that it is given, as a plugin of pytest that sends every report to the parent."""

    def __init__(self, session: pytest.Session, number: int, count: int, line: Connection) -> None:
        self._session, self._line = session, line
        self._number, self._count = number, count
        self._reports: list[Report] = []
        self._is_open = self._is_interrupted = False
        self._last: pytest.Item | None = None

    def run(self, others: list[Connection]) -> None:
        for other in others:
            other.close()  # the parent's ends: a process that holds one keeps a dead worker's line open
        self._become_a_worker()
        try:
            while not self._session.shouldfail and (file := self._next_file()):
                self._run_file(file)
        except (KeyboardInterrupt, EOFError, OSError):  # or the parent is gone
            self._is_interrupted = True
        self._tear_down(None)
        with suppress(OSError):
            self._send(Interrupted() if self._is_interrupted else Ended(self._take_reports()))
        atexit._run_exitfuncs()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        self._reports.append(config.hook.pytest_report_to_serializable(config=config, report=report))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        if not self._is_open:
            return  # the parent knows those of the collection
        kind = warning_message.category
        text, file, line = str(warning_message.message), warning_message.filename, warning_message.lineno
        self._send(
            Warned(RecordedWarning((kind.__module__, kind.__qualname__), text, file, line, when, nodeid, location))
        )

    def _become_a_worker(self) -> None:
        os.setsid()  # the kernel shares its time by session: low priorities here give way to nobody elsewhere
        atexit._clear()
        signal.signal(signal.SIGINT, self._interrupt)
        os.environ[SHARE] = f"{self._number}/{self._count}"
        config = self._session.config
        capture = config.pluginmanager.get_plugin("capturemanager")
        assert capture is not None
        capture.stop_global_capturing()  # its file is the parent's, too
        capture.start_global_capturing()
        capture.suspend_global_capture()
        factory = find_folders(config)
        factory._basetemp = factory.getbasetemp() / f"w{self._number}"
        factory._basetemp.mkdir(mode=0o700, exist_ok=True)
        for plugin in config.pluginmanager.get_plugins():
            if isinstance(plugin, LogXML | TerminalReporter):
                config.pluginmanager.unregister(plugin)
        config.pluginmanager.register(Quiet(), "terminalreporter")
        config.pluginmanager.register(self)
        self._is_open = True

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        """Ends the test, if it lets itself be ended, and no teardown. No program that is started inherits this."""
        if not self._is_interrupted:
            self._is_interrupted = True
            raise KeyboardInterrupt

    def _next_file(self) -> list[int]:
        self._send(Free())
        file: list[int] = self._line.recv()
        if file:
            self._tear_down(self._session.items[file[0]])
        return file

    def _run_file(self, file: list[int]) -> None:
        items = self._session.items
        for test, following in zip(file, self._each_following(file), strict=True):
            if self._is_interrupted:
                raise KeyboardInterrupt
            if self._session.shouldfail or (self._line.poll() and not self._line.recv()):
                return
            item = self._last = items[test]
            self._send(Began(test, find_patience(item)))
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            self._send(Finished(test, self._take_reports()))

    def _each_following(self, file: list[int]) -> Iterator[pytest.Item | None]:
        """What of the fixtures stays after each test. Which file comes next shows only after the last test of this one.

        Until then the file that was collected next stands for it: fixtures of the session and of the package stay.
        """
        items = self._session.items
        yield from (items[place] for place in file[1:])
        mine = items[file[-1]].path
        yield next((item for item in items[file[-1] :] + items[: file[-1]] if item.path != mine), None)

    def _tear_down(self, following: pytest.Item | None) -> None:
        """Ends fixtures that the next test does not share."""
        item = self._last
        if item is None:
            return
        state = self._session._setupstate
        call = CallInfo.from_call(lambda: state.teardown_exact(following), when="teardown")
        if call.excinfo is not None:
            self.pytest_runtest_logreport(item.ihook.pytest_runtest_makereport(item=item, call=call))

    def _take_reports(self) -> list[Report]:
        taken, self._reports = self._reports, []
        return taken

    def _send(self, message: Message) -> None:
        self._line.send(message)


def find_folders(config: pytest.Config) -> pytest.TempPathFactory:
    found: pytest.TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    return found


class Quiet:
    """Stands for the terminal in a worker: what plugins write about a test becomes part of its report."""

    @property
    def _tw(self) -> TerminalWriter:
        return TerminalWriter(sys.stderr)  # each test has its own
