"""The agent's talk with the control plane: reports every ten seconds, and takes the newest assignment of its node."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from agents.contract import REPORT_SECONDS, Answer, Assignment, GpuMinute, Inventory, Report
from agents.control.rotation import is_due, rotate
from agents.host import clocks
from agents.node.node import LocalNode
from agents.node.report_minute import CopyTotals, ReportMinute
from agents.node.state_folder import AgentMemory, Credential, StateFolder
from agents.talk.deadline import printable
from agents.talk.link import Link, LinkError, decode_answer

POLL_SECONDS = 30
SOONEST_SECONDS = 1.0  # between two reports, whatever there is to say
SOONEST_POLL_SECONDS = 0.2  # between two questions, however soon each is answered
MOST_SAID = 20  # lines of log for one answer
HIGHEST_INCARNATION = 2**32 - 2**20  # a report has 32 bits for it: room for a million starts is left
ANSWER_SECONDS = 10.0  # beyond the poll's own time
LONGEST_PAUSE_SECONDS = 30.0
CONTACT_SECONDS = 60.0  # without an answer for so long, what is assigned may not be what is wanted any more

log = logging.getLogger(__name__)


class AssignmentVerdict(StrEnum):
    """What to do with an assignment."""

    TAKE = "take"
    SAME = "same"
    STALE = "stale"
    UNSOUND = "unsound"


def contradiction(node: str, offered: Assignment) -> str:
    """What cannot be meant, whoever says it: one name would stand for two things, and the node never come to rest."""
    if offered.node != node:
        return f"it is of node {offered.node}"
    for what, names in (
        ("instance", [instance.id for instance in offered.instances]),
        ("GPU", [gpu.index for gpu in offered.gpus]),
        ("device", [gpu.uuid for gpu in offered.gpus if gpu.uuid]),
    ):
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            return f"{what} {twice[0]} is named twice"
    return ""


def judge_assignment(seen: AgentMemory, offered: Assignment) -> AssignmentVerdict:
    """An older leader's or an older plan's assignment is refused, however late it comes (I1)."""
    newest, told = (seen.epoch, seen.generation), (offered.epoch, offered.generation)
    if told < newest:
        return AssignmentVerdict.STALE
    return AssignmentVerdict.SAME if told == newest and seen.assignment is not None else AssignmentVerdict.TAKE


def begin_incarnation(folder: StateFolder, now: datetime) -> AgentMemory:
    """A new incarnation, on disk before the first report; above the old one also when the clock went back."""
    seen = folder.seen()
    seen.incarnation = max(seen.incarnation + 1, int(now.timestamp()))
    folder.keep_seen(seen)
    return seen


class Agent:
    """Talks with the control plane in two threads, one that reports and one that waits for assignments.

    Lost contact stops neither: the node goes on serving, and starts nothing new (I4).
    """

    def __init__(
        self,
        folder: StateFolder,
        credential: Credential,
        node: LocalNode,
        seen: AgentMemory,
        date: Callable[[], datetime] = clocks.date,
    ) -> None:
        self._folder = folder
        self._credential = credential
        self._node = node
        self._date = date
        self._seen = seen
        self._version = self._seen.assignment.version if self._seen.assignment else 0
        self._sequence = 0
        self._stale = 0
        self._told_inventory: Inventory | None = None
        self._heard_at = float("-inf")
        self._trouble = ""
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        if self._seen.assignment is not None:
            node.offer(self._seen.assignment)

    def run(self) -> None:
        """Until `stop`. The first report goes out before anything is changed: it says what was found here."""
        poller = threading.Thread(target=self._repeat, args=("assignment", self._poll_once), daemon=True)
        poller.start()
        self._repeat("report", self._report_in_turn)

    def stop(self) -> None:
        self._stopping.set()
        self._node.ledger.news.set()

    def close(self) -> None:
        """After `run` has ended: the node's own threads too. What runs goes on running."""
        self._node.stop()

    @property
    def assignment(self) -> Assignment | None:
        """The newest assignment that was taken."""
        return self._seen.assignment

    @property
    def stale(self) -> int:
        """Assignments that were refused since the start, because a newer one had been seen."""
        return self._stale

    @property
    def trouble(self) -> str:
        """Why the control plane was not heard last; empty when it was."""
        return self._trouble

    @property
    def silent_seconds(self) -> float | None:
        """Since the control plane last answered; None when it never did."""
        silent = clocks.seconds() - self._heard_at
        return silent if silent != float("inf") else None

    def report_once(self, link: Link) -> Answer:
        """Say how things are, the end of the minute before first; the control plane's answer."""
        finished = self._node.finished()
        if finished is not None:
            self._report(link, *finished)
        return self._report(link, *self._node.now())

    def _report(self, link: Link, minute: ReportMinute, totals: Mapping[str, CopyTotals]) -> Answer:
        inventory = self._node.inventory()
        body = self._node.body(minute, totals)
        self._node.looked()
        with self._lock:
            sequence, self._sequence = self._sequence, self._sequence + 1
            report = Report(
                node=self._credential.node,
                incarnation=self._seen.incarnation,
                sequence=sequence,
                at=self._date(),
                minute=minute.began,
                boot_id=clocks.boot_id(),
                health=_worst(body.gpus),
                epoch=self._seen.epoch,
                generation=self._seen.generation,
                assignment_version=self._version,
                stale_assignments=self._stale,
                inventory=inventory if inventory != self._told_inventory else None,
                gpus=body.gpus,
                instances=body.instances,
                usage=body.usage,
                copies=body.copies,
                held_back=body.held_back,
                excursions=body.excursions,
                repartition=body.repartition,
            )
        path = f"/api/v1/nodes/{self._credential.node}/report"
        said = link.request("POST", path, msgspec.json.encode(report), ANSWER_SECONDS)
        answer = decode_answer(said.body, Answer)
        if not any(dropped.what == "state" for dropped in answer.dropped):
            self._told_inventory = inventory
        self._hear()
        for dropped in answer.dropped[:MOST_SAID]:
            log.warning(
                "not kept of the report: %s (%s)", printable(dropped.what[:200]), printable(dropped.reason[:200])
            )
        # What is dropped for good, being too old or closed before, is not said again either.
        again = {dropped.what for dropped in answer.dropped if dropped.reason == "future"}
        self._node.acknowledge(body, again)
        if self._seen.incarnation < answer.incarnation < HIGHEST_INCARNATION:
            # Our own memory was lost, or a twin runs: start above what is known, or nothing of ours is kept.
            with self._lock:
                self._seen.incarnation = answer.incarnation + 1
                self._folder.keep_seen(self._seen)
        return answer

    def poll_once(self, link: Link, wait_seconds: int = POLL_SECONDS) -> AssignmentVerdict | None:
        """Wait for an assignment other than the last one heard; what became of it, None when none came."""
        path = f"/api/v1/nodes/{self._credential.node}/assignment?after={self._version}&waitSeconds={wait_seconds}"
        answer = link.request("GET", path, None, wait_seconds + ANSWER_SECONDS)
        self._hear()
        if answer.status == 204:
            return None
        return self.offer(decode_answer(answer.body, Assignment))

    def offer(self, offered: Assignment) -> AssignmentVerdict:
        """Take an assignment unless a newer one was seen. It is on disk before anything is done about it."""
        with self._lock:
            wrong = contradiction(self._credential.node, offered)
            if wrong:
                log.error("refused assignment %s.%s: %s", offered.epoch, offered.generation, wrong)
                self._version = offered.version
                return AssignmentVerdict.UNSOUND
            verdict = judge_assignment(self._seen, offered)
            if verdict is AssignmentVerdict.STALE:
                self._stale += 1
                log.warning("refused a stale assignment: %s.%s", offered.epoch, offered.generation)
            elif verdict is AssignmentVerdict.TAKE:
                seen = AgentMemory(self._seen.incarnation, offered.epoch, offered.generation, offered)
                self._folder.keep_seen(seen)  # on a full disk it raises: nothing was taken, and it is asked for again
                self._seen = seen
                log.info("took assignment %s.%s", offered.epoch, offered.generation)
                self._node.offer(offered)
            self._version = offered.version
            return verdict

    def _hear(self) -> None:
        self._trouble = ""
        self._heard_at = clocks.seconds()
        self._node.set_contact(True)

    def _report_in_turn(self, link: Link) -> None:
        again_at = time.monotonic() + REPORT_SECONDS
        if self._credential.next is not None:
            self._rotate(self._date(), link)  # a turn that was begun is ended before anything else is sent
        answer = self.report_once(link)
        self._rotate(answer.now, link)
        self._stopping.wait(SOONEST_SECONDS)
        news = self._node.ledger.news
        news.wait(max(0.0, again_at - time.monotonic()))
        news.clear()

    def _poll_once(self, link: Link) -> None:
        if self._credential.next is not None:
            self._stopping.wait(1.0)  # the other thread ends the turn first: the token in use may be given up
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
            try:
                once(link)
                pause = 1.0
            except Exception as error:  # whatever the other side says: this thread is the node's ear, or its voice
                if not isinstance(error, LinkError | msgspec.DecodeError | OSError):
                    log.exception("%s: an answer was not understood", what)
                    link.close()
                if clocks.seconds() - self._heard_at > CONTACT_SECONDS:
                    self._node.set_contact(False)
                if getattr(error, "status", 0) == 401 and self._joined_anew():
                    continue
                self._trouble = f"{what}: {error}"
                level = logging.ERROR if getattr(error, "status", 0) in (401, 403) else logging.WARNING
                log.log(level, "%s: %s", what, error)
                wanted = max(pause, getattr(error, "retry_seconds", 0.0))
                # Jitter: a thousand agents must not come back at the same moment.
                self._stopping.wait(wanted * (0.5 + random.random()))  # noqa: S311
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        link.close()

    def _joined_anew(self) -> bool:
        """Whether this node was joined once more while we ran: what it was given for it is taken up."""
        try:
            kept = self._folder.credential()
        except (OSError, msgspec.MsgspecError):
            return False
        known = self._credential
        if kept is None or kept.token == known.token or (kept.server, kept.node) != (known.server, known.node):
            return False
        self._credential, self._told_inventory = kept, None
        self._node.ledger.news.set()  # everything is news there
        log.info("this node was joined anew, and reports again")
        return True

    def _rotate(self, now: datetime, link: Link) -> None:
        """Take up the next token when it is time; until that is done the old one serves."""
        if not is_due(self._credential, now):
            return
        try:
            self._credential = rotate(self._folder, link)
            log.info("the node's token was renewed; it ends at %s", self._credential.expires_at)
        except LinkError as error:
            log.warning("the node's token was not renewed: %s", error)
            self._credential = self._folder.credential() or self._credential

    def _link(self) -> Link:
        return Link(self._credential.server, self._credential.token, self._credential.ca_file)


def _worst(gpus: Sequence[GpuMinute]) -> str:
    """A node is as healthy as the least healthy of its GPUs, and failed only when all are."""
    if gpus and all(gpu.health == "failed" for gpu in gpus):
        return "failed"
    return "ok" if all(gpu.health == "ok" for gpu in gpus) else "degraded"
