"""Answers agents that wait for their next assignment: one query per change for all of them."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import msgspec

from agents.contract.logs import LogWanted
from app.access import Principal
from app.nodes import metrics
from app.nodes.node_lane import NodeLane
from app.store.access import tokens
from app.store.database.database import Unavailable
from app.store.database.notices import Notices
from app.store.fleet import assignments, log_requests
from app.tokens import Authenticator, explain_revocation

PAUSE_SECONDS = 1.0
MOST_LOGS = 64  # requests for logs in one answer
# Of the time that an agent asks for. After a restart of this server all agents begin to wait at the same moment; if
# all their times were up together, too, reports would queue behind a thousand new polls.
LEAST_SHARE = 0.7
RECHECK_SECONDS = 30.0  # notices check the versions every second; this only bounds a stop

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Poll:
    """An agent that waits."""

    who: Principal
    node: str
    after: int
    body: asyncio.Future[str]


class AssignmentPolls:
    """Keeps the newest version of every node's assignment, and the agents that wait for a newer one."""

    def __init__(self, lane: NodeLane, notices: Notices, authenticator: Authenticator) -> None:
        self._lane = lane
        self._notices = notices
        self._authenticator = authenticator
        self._token_version: int | None = None  # up to which revoked tokens have ended their polls
        self._newest: dict[str, int] = {}
        self._version = 0
        self._loaded = False
        self._polls: dict[str, set[Poll]] = {}
        self._log_version: int | None = None  # up to which requests for logs were read
        self._logs: dict[str, list[tuple[float, LogWanted]]] = {}  # of nodes that do not wait here now; until when
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Starts to follow changes; called in the event loop that the polls run in."""
        self._tasks = [
            asyncio.create_task(self._forever("assignment", self._follow_assignments)),
            asyncio.create_task(self._forever("token", self._follow_tokens)),
            asyncio.create_task(self._forever("log", self._follow_logs)),
        ]

    async def stop(self) -> None:
        """Stops, and ends every poll with nothing new."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for poll in self._all():
            poll.body.cancel()

    def newest(self, node: str) -> int:
        """Returns the version of the node's assignment, as far as this process knows; 0 for none."""
        return self._newest.get(node, 0)

    async def wait(self, who: Principal, node: str, after: int, seconds: float) -> str | None:
        """Returns the node's assignment once its version differs from `after`; None after 70 to 100 % of the time."""
        if not self._loaded or self.newest(node) != after:
            # Also when it is lower than the agent's: the database was restored, and its content counts.
            found = await self._lane.read(lambda connection: assignments.read_assignment(connection, node))
            if found is not None and found[0] != after:
                self._newest[node] = max(self.newest(node), found[0])
                return found[1]
        if wanted := self._take_logs(node):
            return await self._add_logs(node, wanted)
        if who.expires_at is not None:
            seconds = min(seconds, max(0.0, (who.expires_at - datetime.now(UTC)).total_seconds()))
        seconds *= random.uniform(LEAST_SHARE, 1.0)  # noqa: S311 (not a secret)
        poll = Poll(who, node, after, asyncio.get_running_loop().create_future())
        waiting = self._polls.setdefault(node, set())
        waiting.add(poll)
        try:
            # Only now: a token that ends from here on ends this poll as well.
            if not await self._lane.is_current(self._authenticator, who):
                raise explain_revocation()
            if self.newest(node) > after:  # it arrived during the read
                await self._serve({node})
            with metrics.WAITING_AGENTS.track_inprogress():
                return await asyncio.wait_for(poll.body, seconds)
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            if poll.body.cancelled() and not _cancelling():
                return None  # this server stops; the agent is still connected
            raise
        finally:
            waiting.discard(poll)
            if not waiting:
                self._polls.pop(node, None)

    async def _follow_assignments(self) -> None:
        while True:
            version = await self._notices.wait("assignment", self._version, RECHECK_SECONDS)
            if version > self._version or not self._loaded:
                await self._read_changes(version)

    async def _read_changes(self, version: int) -> None:
        waiting = list(self._polls)
        rows = await self._lane.read(lambda connection: assignments.newer_than(connection, self._version, waiting))
        # Versions become visible in commit order, so nothing below the last one is still to come.
        self._version = max([version, self._version, *(row[1] for row in rows)])
        self._loaded = True
        missed = set()
        for node, newest, body in rows:
            self._newest[node] = newest
            if body is not None:
                self._answer(node, newest, body)
            elif node in self._polls:
                missed.add(node)
        if missed:
            await self._serve(missed)

    async def _serve(self, nodes: set[str]) -> None:
        """Answers polls that began during the read."""
        for node in nodes:
            found = await self._lane.read(partial(assignments.read_assignment, node=node))
            if found is not None:
                self._answer(node, *found)

    def _answer(self, node: str, version: int, body: str) -> None:
        for poll in self._polls.get(node, ()):
            if poll.after < version and not poll.body.done():
                poll.body.set_result(body)

    async def _follow_logs(self) -> None:
        """Hands requests for logs to the nodes that wait here; the others get them with their next poll."""
        if self._log_version is None:
            self._log_version = self._notices.current(log_requests.STREAM)
        while True:
            version = await self._notices.wait(log_requests.STREAM, self._log_version, RECHECK_SECONDS)
            if version == self._log_version:
                continue
            after = self._log_version
            due = await self._lane.read(partial(log_requests.read_since, after=after))
            self._log_version = max([version, *(line.version for line in due)])
            for line in due:
                until = time.monotonic() + line.wanted.seconds + log_requests.ANSWER_SECONDS
                self._logs.setdefault(line.node, []).append((until, line.wanted))
            for node in {line.node for line in due} & self._polls.keys():
                body = await self._add_logs(node, self._take_logs(node))
                for poll in self._polls.get(node, ()):
                    if body is not None and not poll.body.done():
                        poll.body.set_result(body)

    def _take_logs(self, node: str) -> list[LogWanted]:
        """Returns the requests that the node has not received yet, and forgets them and all that have expired."""
        now = time.monotonic()
        for name in [name for name, known in self._logs.items() if all(until < now for until, _ in known)]:
            del self._logs[name]
        return [wanted for until, wanted in self._logs.pop(node, ()) if until >= now][:MOST_LOGS]

    async def _add_logs(self, node: str, wanted: Sequence[LogWanted]) -> str | None:
        """Returns the node's assignment as it is, with requests for logs."""
        found = await self._lane.read(partial(assignments.read_assignment, node=node))
        if found is None or not wanted:
            return None
        return f'{found[1].rstrip()[:-1]},"logs":{msgspec.json.encode(wanted).decode()}}}'

    async def _follow_tokens(self) -> None:
        """Ends the polls of revoked tokens; a change that could not be looked at is looked at again."""
        if self._token_version is None:
            self._token_version = self._notices.current("token")
        while True:
            version = await self._notices.wait("token", self._token_version, RECHECK_SECONDS)
            if version == self._token_version:
                continue
            ids = sorted({poll.who.id for poll in self._all()})
            live = await self._lane.read(partial(tokens.live_ids, ids=ids))
            for poll in self._all():
                if poll.who.id in set(ids) - live and not poll.body.done():
                    poll.body.set_exception(explain_revocation())
            self._token_version = version

    def _all(self) -> list[Poll]:
        return [poll for polls in self._polls.values() for poll in polls]

    async def _forever(self, what: str, follow: Callable[[], Coroutine[object, object, None]]) -> None:
        while True:
            try:
                await follow()
            except Unavailable as error:
                log.warning("polls_wait_for_database", extra={"stream": what, "error": str(error)})
            except Exception:
                log.exception("polls_failed", extra={"stream": what})
            await asyncio.sleep(PAUSE_SECONDS)


def _cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
