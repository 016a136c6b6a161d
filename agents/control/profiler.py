"""Measures for the campaign of this node: takes a task, measures, keeps the result on disk, and reports it."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from pathlib import Path

import msgspec

from agents.contract.campaigns import FailedSetting, MeasuredSetting, ProfilingAnswer, ProfilingReport, ProfilingTask
from agents.host import durable
from agents.keeper.drivers import CopyFailed
from agents.profiling.copy import end_leftovers
from agents.profiling.measure import measure
from agents.profiling.seat import Interrupted, ProfilingSeat
from agents.profiling.together import measure_together
from agents.talk.link import Link, LinkError, decode_answer

ANSWER_SECONDS = 30.0  # the next setting is computed meanwhile
GONE = (403, 404, 409, 422)  # no repetition would be answered otherwise


log = logging.getLogger(__name__)


class Profiler:
    """Works while the control plane's answers to reports name a campaign. One measurement at a time.

    A result is on disk before it is sent, so that neither a killed agent nor a silent server loses it.
    """

    def __init__(self, seat: ProfilingSeat, folder: Path, node: str) -> None:
        self._seat = seat
        self._path = folder / "measured.json"
        self._node = node
        self._campaign = ""
        self._wanted = threading.Event()
        self._stopping = threading.Event()

    def offer(self, campaign: str) -> None:
        """Takes the name of the campaign that this node measures for; empty: none."""
        self._campaign = campaign
        if campaign or self._path.exists():
            self._wanted.set()

    def stop(self) -> None:
        self._stopping.set()
        self._wanted.set()

    def clean(self) -> None:
        """Ends the copies that an earlier agent measured when it was killed."""
        for name in end_leftovers(self._seat):
            log.info("%s was left by an earlier agent, and was ended", name)

    def await_and_work(self, link: Link) -> None:
        """Waits until there is something to measure or to report, and does it."""
        self._wanted.wait()
        self.work(link)

    def work(self, link: Link) -> None:
        """Reports a result that waits, and measures until the campaign needs nothing more. Raises LinkError."""
        while not self._stopping.is_set():
            report = self._waiting() or ProfilingReport(self._campaign)
            if not report.campaign:
                self._wanted.clear()
                return
            answer = self._exchange(link, report)
            if answer is None or answer.is_over:
                self._wanted.clear()
                return
            if answer.task is None:
                self._stopping.wait(answer.wait_seconds)
            elif occupied := self._seat.occupants(answer.task.gpu):
                self._exchange(link, ProfilingReport(answer.task.campaign, occupied=occupied[:500]))
                self._stopping.wait(answer.wait_seconds)
            else:
                self._keep(self._measure(answer.task))

    def _measure(self, task: ProfilingTask) -> ProfilingReport | None:
        def why_stop() -> str:
            if self._stopping.is_set():
                return "the agent stops"
            return "" if self._campaign == task.campaign else "the campaign is over"

        measured: MeasuredSetting | None = None
        failed: FailedSetting | None = None
        try:
            measured = (measure_together if task.beside else measure)(task, self._seat, why_stop)
        except Interrupted as interrupted:
            log.info("campaign %s, measurement %s: %s", task.campaign, task.sequence, interrupted)
            return None
        except CopyFailed as failure:
            message = "".join(letter if letter.isprintable() else " " for letter in failure.message)[:500]
            failed = FailedSetting(task.sequence, task.setting, failure.reason, message, task.attempt)
            log.warning("campaign %s, measurement %s: %s", task.campaign, task.sequence, failure)
        return ProfilingReport(task.campaign, measured, failed)

    def _exchange(self, link: Link, report: ProfilingReport) -> ProfilingAnswer | None:
        """Sends a report; forgets the kept one once it is answered. None: the server knows no such campaign."""
        path = f"/api/v1/nodes/{self._node}/profiling"
        try:
            answer = link.request("POST", path, msgspec.json.encode(report), ANSWER_SECONDS)
        except LinkError as error:
            if error.status not in GONE:
                raise
            log.warning("the control plane does not take the measurement: %s", error)
            self._path.unlink(missing_ok=True)
            return None
        if report.measured or report.failed:
            self._path.unlink(missing_ok=True)
        return decode_answer(answer.body, ProfilingAnswer)

    def _waiting(self) -> ProfilingReport | None:
        """Returns the result that was measured and not yet taken by the control plane."""
        with suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(self._path.read_bytes(), type=ProfilingReport)
        return None

    def _keep(self, report: ProfilingReport | None) -> None:
        if report is not None:
            durable.write(self._path, msgspec.json.encode(report))
