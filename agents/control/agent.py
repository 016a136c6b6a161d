"""Connects the agent to the control plane: sends a report every ten seconds and takes the node's assignments."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Mapping
from datetime import datetime

import msgspec

from agents.contract.assignments import Assignment
from agents.contract.fields import MOST_REPORT_BYTES, REPORT_SECONDS
from agents.contract.reports import Answer, Inventory
from agents.control.assignments import AssignmentVerdict, find_contradiction, judge_assignment, next_incarnation
from agents.control.composing import ReportHeading, compose_report, log_dropped
from agents.control.contact import Contact
from agents.control.join import join_again
from agents.control.printing import Printing
from agents.control.profiler import Profiler
from agents.control.rotation import is_due, rotate
from agents.host import clocks
from agents.node.fitting import fit
from agents.node.node import LocalNode
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.node.state_folder import AgentMemory, Credential, StateFolder
from agents.talk.link import Link, LinkError, decode_answer

POLL_SECONDS = 30
SOONEST_SECONDS = 1.0  # between two reports, even if there is news
SOONEST_POLL_SECONDS = 0.2  # between two polls, however quickly each is answered
SENT_AGAIN = ("future", "later")  # reasons for which usage was not stored yet
SMALLEST_REPORT_BYTES = 16 << 10
TOO_LARGE = 413
ANSWER_SECONDS = 10.0  # beyond the poll's own wait
LONGEST_PAUSE_SECONDS = 30.0
CLOSE_SECONDS = 5.0  # until a measured copy has ended

log = logging.getLogger(__name__)


class Agent:
    """Runs two threads: one sends reports, one waits for assignments.

    Losing contact stops neither: the node keeps serving, and starts nothing new (I4).
    """

    def __init__(
        self,
        folder: StateFolder,
        credential: Credential,
        node: LocalNode,
        memory: AgentMemory,
        date: Callable[[], datetime] = clocks.date,
        clock: Callable[[], float] = clocks.seconds,
    ) -> None:
        self._folder = folder
        self._credential = credential
        self._node = node
        self._date = date
        self._memory = memory
        self._profiler = Profiler(node.seat(), folder.path, credential.node)
        self._printing = Printing(node.read_printed, credential.node)
        self._version = self._memory.assignment.version if self._memory.assignment else 0
        self._sequence = 0
        self._stale = 0
        self._sent_inventory: Inventory | None = None
        self._most_bytes = MOST_REPORT_BYTES
        self._contact = Contact(clock)
        self._trouble = ""
        self._lock = threading.Lock()
        self._renewing = threading.Lock()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        if self._memory.assignment is not None:
            node.offer(self._memory.assignment)

    def run(self) -> None:
        """Runs until `stop`. The first report is sent before anything is changed, and tells what was found here."""
        self._profiler.clean()
        self._threads = [
            threading.Thread(target=self._repeat, args=(what, once), name=what, daemon=True)
            for what, once in (
                ("assignment", self._poll_once),
                ("profiling", self._profiler.await_and_work),
                ("logs", self._printing.work),
            )
        ]
        for thread in self._threads:
            thread.start()
        self._repeat("report", self._report_in_turn)

    def stop(self) -> None:
        self._stopping.set()
        self._profiler.stop()
        self._printing.stop()
        self._node.ledger.news.set()

    def close(self) -> None:
        """Stops the node's threads once `run` has ended. Copies keep running, but for one that was just measured."""
        for thread in self._threads[1:]:
            thread.join(timeout=CLOSE_SECONDS)
        self._node.stop()

    @property
    def assignment(self) -> Assignment | None:
        """The newest assignment taken."""
        return self._memory.assignment

    @property
    def stale(self) -> int:
        """The number of assignments refused since the start because a newer one had come before."""
        return self._stale

    @property
    def trouble(self) -> str:
        """The reason why the last request to the control plane failed; empty if it did not."""
        return self._trouble

    @property
    def silent_seconds(self) -> float | None:
        """Seconds since the control plane last answered; None if it never did."""
        return None if (silent := self._contact.silent_seconds) == float("inf") else silent

    def report_once(self, link: Link) -> Answer:
        """Sends the finished minute, if there is one, and the current one; returns the control plane's answer."""
        finished = self._node.take_finished()
        if finished is not None:
            self._report(link, *finished)
        return self._report(link, *self._node.current_minute())

    def _report(self, link: Link, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> Answer:
        inventory = self._node.inventory()
        body = self._node.report_body(minute, totals)
        self._node.save_look()
        with self._lock:
            sequence, self._sequence = self._sequence, self._sequence + 1
            heading = ReportHeading(self._credential.node, sequence, self._date(), self._version, self._stale)
            sent_before = inventory == self._sent_inventory
            report = compose_report(heading, self._memory, body, minute.began, None if sent_before else inventory)
        report, encoded = fit(report, self._most_bytes)
        answer = self._send(link, encoded)
        if not any(dropped.what == "state" for dropped in answer.dropped):
            self._sent_inventory = inventory
            self._node.note_stored(report.copies, answer)
        self._note_answer()
        log_dropped(answer)
        # Usage dropped for good (too old, or closed before) is not sent again; usage that is early is.
        resent = {dropped.what for dropped in answer.dropped if dropped.reason in SENT_AGAIN}
        self._node.acknowledge(report.usage, resent)
        self._follow_incarnation(report.incarnation, answer)
        self._profiler.offer(answer.campaign)
        return answer

    def _send(self, link: Link, report: bytes) -> Answer:
        path = f"/api/v1/nodes/{self._credential.node}/report"
        try:
            reply = link.request("POST", path, report, ANSWER_SECONDS)
        except LinkError as error:
            if error.status == TOO_LARGE:  # to something on the way: the next one is smaller
                self._most_bytes = max(SMALLEST_REPORT_BYTES, min(self._most_bytes, len(report)) // 2)
            raise
        return decode_answer(reply.body, Answer)

    def _follow_incarnation(self, sent: int, answer: Answer) -> None:
        wanted = next_incarnation(self._memory.incarnation, sent, answer)
        if wanted != self._memory.incarnation:
            with self._lock:
                self._memory.incarnation = wanted
                self._folder.keep_memory(self._memory)
            self._node.ledger.news.set()

    def poll_once(self, link: Link, wait_seconds: int = POLL_SECONDS) -> AssignmentVerdict | None:
        """Waits for a new assignment and takes it; returns the verdict on it, or None if none came."""
        path = f"/api/v1/nodes/{self._credential.node}/assignment?after={self._version}&waitSeconds={wait_seconds}"
        answer = link.request("GET", path, None, wait_seconds + ANSWER_SECONDS)
        self._note_answer()
        if answer.status == 204:
            return None
        assignment = decode_answer(answer.body, Assignment)
        if assignment.logs:
            self._printing.offer(assignment.logs)
            if assignment.version == self._version:
                return None  # only the request for logs is new
            assignment = msgspec.structs.replace(assignment, logs=())
        return self.offer(assignment)

    def offer(self, offered: Assignment) -> AssignmentVerdict:
        """Takes an assignment unless a newer one came before. It is on disk before it is acted on."""
        with self._lock:
            wrong = find_contradiction(self._credential.node, offered)
            if wrong:
                log.error("refused contradictory assignment %s.%s: %s", offered.epoch, offered.generation, wrong)
                self._version = offered.version
                return AssignmentVerdict.UNSOUND
            verdict = judge_assignment(self._memory, offered)
            if verdict is AssignmentVerdict.STALE:
                self._stale += 1
                log.warning("refused a stale assignment: %s.%s", offered.epoch, offered.generation)
            elif verdict is AssignmentVerdict.TAKE:
                memory = AgentMemory(self._memory.incarnation, offered.epoch, offered.generation, offered)
                self._folder.keep_memory(memory)  # raises on a full disk: nothing is taken, and the poll repeats
                self._memory = memory
                log.info("took assignment %s.%s", offered.epoch, offered.generation)
                self._node.offer(offered)
            self._version = offered.version
            return verdict

    def _note_answer(self) -> None:
        self._trouble = ""
        self._contact.note_answer()
        self._node.set_contact(True)

    def _report_in_turn(self, link: Link) -> None:
        began_at = time.monotonic()
        if self._credential.next is not None:
            self._rotate(self._date(), link)  # an unfinished rotation is completed before anything else is sent
        answer = self.report_once(link)
        self._rotate(answer.now, link)
        answered_at = time.monotonic()
        # The answer to the next report shows that the control plane was there until then.
        again_at = min(began_at + REPORT_SECONDS, answered_at + self._node.next_report_seconds(REPORT_SECONDS))
        self._stopping.wait(SOONEST_SECONDS)
        news = self._node.ledger.news
        news.wait(max(0.0, again_at - time.monotonic()))
        news.clear()

    def _poll_once(self, link: Link) -> None:
        if self._credential.next is not None:
            self._stopping.wait(1.0)  # the report thread completes the rotation first: the old token may end
            return
        asked_at = time.monotonic()
        self.poll_once(link)
        self._stopping.wait(SOONEST_POLL_SECONDS - (time.monotonic() - asked_at))

    def _repeat(self, what: str, once: Callable[[Link], None]) -> None:
        used, link = self._credential, self._link()
        pause = 1.0
        while not self._stopping.is_set():
            if used is not self._credential:  # the token has changed
                link.close()
                used, link = self._credential, self._link()
            error = self.attempt(once, link)
            if error is None:
                pause = 1.0
                continue
            if not isinstance(error, LinkError | msgspec.DecodeError | OSError):
                log.error("%s: an answer could not be processed", what, exc_info=error)
                link.close()
            if getattr(error, "status", 0) == 401 and self._renew_credential(used):
                continue
            self._trouble = f"{what}: {error}"
            level = logging.ERROR if getattr(error, "status", 0) in (401, 403) else logging.WARNING
            log.log(level, "%s: %s", what, error)
            wanted = max(pause, getattr(error, "retry_seconds", 0.0))
            # Jitter, so that a thousand agents do not return at the same moment.
            self._stopping.wait(wanted * (0.5 + random.random()))  # noqa: S311
            pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        link.close()

    def attempt(self, once: Callable[[Link], object], link: Link) -> Exception | None:
        """Asks the control plane once; returns what went wrong. After a minute without an answer contact is lost."""
        try:
            once(link)
        except Exception as error:  # no answer may end its threads: without them the node is cut off
            if self._contact.is_lost:
                self._node.set_contact(False)
            return error
        return None

    def _renew_credential(self, refused: Credential) -> bool:
        """Returns whether there is another credential than the refused one; one thread of several gets it."""
        with self._renewing:
            return self._credential is not refused or self._take_up_new_credential() or self._join_again()

    def _join_again(self) -> bool:
        """Joins with the token of this pod, if the agent is one; returns whether that has succeeded."""
        if self._credential.pod is None:
            return False
        try:
            joined = join_again(self._folder, self._credential)
        except (LinkError, OSError, ValueError) as error:
            log.warning("the node could not join again: %s", error)
            return False
        if joined.node != self._credential.node:  # much was opened under the old name
            log.warning("this node is called %s now: the agent ends, to start again under that name", joined.node)
            self.stop()
            return False
        self._credential, self._sent_inventory = joined, None
        self._node.ledger.news.set()
        log.info("the node's token was refused, and this node has joined again")
        return True

    def _take_up_new_credential(self) -> bool:
        """Takes up a new credential if the node has joined again meanwhile; returns whether it has."""
        try:
            stored = self._folder.credential()
        except (OSError, msgspec.MsgspecError):
            return False
        known = self._credential
        if stored is None or stored.token == known.token or (stored.server, stored.node) != (known.server, known.node):
            return False
        self._credential, self._sent_inventory = stored, None
        self._node.forget_indexes()
        self._node.ledger.news.set()  # the new server knows nothing yet
        log.info("this node has joined again; reporting with its new token")
        return True

    def _rotate(self, now: datetime, link: Link) -> None:
        """Rotates the token when it is due; the old one serves until that has succeeded."""
        if not is_due(self._credential, now):
            return
        try:
            self._credential = rotate(self._folder, link)
            log.info("the node's token was rotated; the new one expires at %s", self._credential.expires_at)
        except LinkError as error:
            log.warning("the node's token could not be rotated: %s", error)
            self._credential = self._folder.credential() or self._credential

    def _link(self) -> Link:
        return Link(self._credential.server, self._credential.token, self._credential.ca_file)
