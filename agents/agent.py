"""The agent's loop: reports what it sees every ten seconds, and takes the newest assignment of its node."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

from agents.contract import REPORT_SECONDS, Answer, Assignment, Inventory, Report
from agents.link import Link, LinkError
from agents.state import Credential, Folder, Seen

POLL_SECONDS = 30
ANSWER_SECONDS = 10.0  # beyond the poll's own time
LONGEST_PAUSE_SECONDS = 30.0

log = logging.getLogger(__name__)


class Verdict(StrEnum):
    """What to do with an assignment."""

    TAKE = "take"
    SAME = "same"
    STALE = "stale"


def judge(seen: Seen, offered: Assignment) -> Verdict:
    """An older leader's or an older plan's assignment is refused, however late it comes (I1)."""
    newest, told = (seen.epoch, seen.generation), (offered.epoch, offered.generation)
    if told < newest:
        return Verdict.STALE
    return Verdict.SAME if told == newest and seen.assignment is not None else Verdict.TAKE


def start(folder: Folder, now: datetime) -> Seen:
    """A new incarnation, on disk before the first report; above the old one also when the clock went back."""
    seen = folder.seen()
    seen.incarnation = max(seen.incarnation + 1, int(now.timestamp()))
    folder.keep_seen(seen)
    return seen


class Agent:
    """Two threads, one that reports and one that waits for assignments. Lost contact stops neither."""

    def __init__(
        self,
        folder: Folder,
        credential: Credential,
        inventory: Inventory | None = None,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._folder = folder
        self._credential = credential
        self._inventory = inventory
        self._clock = clock
        self._seen = start(folder, clock())
        self._version = self._seen.assignment.version if self._seen.assignment else 0
        self._sequence = 0
        self._stale = 0
        self._told_inventory = False
        self._lock = threading.Lock()
        self._stopping = threading.Event()

    def run(self) -> None:
        """Until `stop`."""
        poller = threading.Thread(target=self._repeat, args=("assignment", self._poll_once), daemon=True)
        poller.start()
        self._repeat("report", self._report_in_turn)

    def stop(self) -> None:
        self._stopping.set()

    @property
    def assignment(self) -> Assignment | None:
        """The newest assignment that was taken."""
        return self._seen.assignment

    def report_once(self, link: Link) -> Answer:
        """Say how things are; the control plane's answer."""
        body = msgspec.json.encode(self._report())
        path = f"/api/v1/nodes/{self._credential.node}/report"
        answer = msgspec.json.decode(link.request("POST", path, body, ANSWER_SECONDS).body, type=Answer)
        self._told_inventory = True
        for dropped in answer.dropped:
            log.warning("not kept of the report: %s (%s)", dropped.what, dropped.reason)
        if answer.incarnation > self._seen.incarnation:
            # Our own memory was lost, or a twin runs: start above what is known, or nothing of ours is kept.
            with self._lock:
                self._seen.incarnation = answer.incarnation + 1
                self._folder.keep_seen(self._seen)
        return answer

    def poll_once(self, link: Link, wait_seconds: int = POLL_SECONDS) -> Verdict | None:
        """Wait for an assignment other than the last one heard; what became of it, None when none came."""
        path = f"/api/v1/nodes/{self._credential.node}/assignment?after={self._version}&waitSeconds={wait_seconds}"
        answer = link.request("GET", path, None, wait_seconds + ANSWER_SECONDS)
        if answer.status == 204:
            return None
        return self.offer(msgspec.json.decode(answer.body, type=Assignment))

    def offer(self, offered: Assignment) -> Verdict:
        """Take an assignment unless a newer one was seen. It is on disk before anything is done about it."""
        with self._lock:
            self._version = offered.version
            verdict = judge(self._seen, offered)
            if verdict is Verdict.STALE:
                self._stale += 1
                log.warning("refused a stale assignment: %s.%s", offered.epoch, offered.generation)
            elif verdict is Verdict.TAKE:
                self._seen.epoch, self._seen.generation = offered.epoch, offered.generation
                self._seen.assignment = offered
                self._folder.keep_seen(self._seen)
                log.info("took assignment %s.%s", offered.epoch, offered.generation)
            return verdict

    def _report(self) -> Report:
        now = self._clock()
        with self._lock:
            sequence, self._sequence = self._sequence, self._sequence + 1
            return Report(
                node=self._credential.node,
                incarnation=self._seen.incarnation,
                sequence=sequence,
                at=now,
                minute=now.replace(second=0, microsecond=0),
                boot_id=_boot_id(),
                epoch=self._seen.epoch,
                generation=self._seen.generation,
                assignment_version=self._version,
                stale_assignments=self._stale,
                inventory=None if self._told_inventory else self._inventory,
            )

    def _report_in_turn(self, link: Link) -> None:
        due = time.monotonic() + REPORT_SECONDS
        self.report_once(link)
        self._stopping.wait(max(0.0, due - time.monotonic()))

    def _poll_once(self, link: Link) -> None:
        self.poll_once(link)

    def _repeat(self, what: str, once: Callable[[Link], None]) -> None:
        link = Link(self._credential.server, self._credential.token, self._credential.ca_file)
        pause = 1.0
        while not self._stopping.is_set():
            try:
                once(link)
                pause = 1.0
            except (LinkError, msgspec.DecodeError) as error:
                level = logging.ERROR if getattr(error, "status", 0) in (401, 403) else logging.WARNING
                log.log(level, "%s: %s", what, error)
                wanted = max(pause, getattr(error, "retry_seconds", 0.0))
                # Jitter: a thousand agents must not come back at the same moment.
                self._stopping.wait(wanted * (0.5 + random.random()))  # noqa: S311
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
        link.close()


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
