"""The agent under a control plane that is hostile or broken: it survives, and waits for a better one."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from agents.contract.assignments import AssignedGpu, AssignedInstance, Assignment
from agents.control.agent import Agent
from agents.control.assignments import HIGHEST_INCARNATION, AssignmentVerdict, begin_incarnation, find_contradiction
from agents.gateway.client import SidecarRoutes
from agents.host.deadline import MOST_BYTES
from agents.node.state_folder import Credential, StateFolder
from agents.seams.routes import RoutesAway
from agents.talk.link import Link, LinkError
from tests.agents.talk.test_copy_client import copy_that, drips, header_without_end, never_ends, ok, says
from tests.support.nodes import still_node
from tests.support.patience import patience, until

DEEP = b"[" * 100_000
TOKEN = "gw_canary_0123456789abcdef"
Behaves = Callable[[socket.socket, bytes], None]


def too_long(connection: socket.socket, request: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MOST_BYTES + 1))


def agent_of(folder: Path, port: int) -> Agent:
    place = StateFolder(folder)
    memory = begin_incarnation(place, datetime.now(UTC))
    credential = Credential(f"http://127.0.0.1:{port}", "node-1", TOKEN)
    return Agent(place, credential, still_node(place, memory.incarnation), memory)


@pytest.mark.parametrize(
    "behave",
    [
        drips,
        never_ends,
        header_without_end,
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
        says(b"HTTP/1.1 100 Continue\r\n\r\n" * 10),
        too_long,
        says(b"HTTP/1.1 503 Busy\r\nRetry-After: \xb2\r\nContent-Length: 0\r\n\r\n"),
        says(b"HTTP/1.1 500 Bad\r\n\r\n" + DEEP),
        says(b'HTTP/1.1 500 Bad\r\n\r\n{"detail": "\xff"}'),
    ],
)
def test_any_hostile_answer_of_the_server_is_an_error_in_time(behave: Behaves) -> None:
    with copy_that(behave) as port, pytest.raises(LinkError):
        Link(f"http://127.0.0.1:{port}", TOKEN).request("GET", "/", None, 0.5)


@pytest.mark.parametrize("behave", [drips, never_ends, says(ok(DEEP)), says(ok(b'"\xff"')), says(ok(b"{}"))])
def test_a_gateway_that_answers_so_is_away(behave: Behaves) -> None:
    with copy_that(behave) as port, pytest.raises(RoutesAway):
        SidecarRoutes(f"http://127.0.0.1:{port}", "node-1", seconds=0.5).counters()


def test_case_29_a_server_that_says_the_token_back_writes_it_into_no_log() -> None:
    reply = b'HTTP/1.1 401 No\r\n\r\n{"detail": "unknown: %s\\n\\u001b[2J"}' % TOKEN.encode()
    with copy_that(says(reply)) as port, pytest.raises(LinkError) as caught:
        Link(f"http://127.0.0.1:{port}", TOKEN).request("GET", "/")
    assert TOKEN not in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"node": "node-1", "version": 1, "epoch": 1, "generation": 1, "new": %s' % DEEP,
        b'{"node": "\xff"}',
        b'{"accepted": true, "assignmentVersion": 1, "now": "2026-01-01T00:00:00", "incarnation": ' + b"9" * 5000,
        b"null",
    ],
    ids=["deep", "deep inside", "no text", "5,000 digits", "null"],
)
def test_no_answer_ends_a_thread_of_the_agent(body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with copy_that(says(ok(body))) as port:
        agent = agent_of(tmp_path, port)
        running = threading.Thread(target=agent.run)
        running.start()
        for what in ("report: ", "assignment: "):
            until(lambda what=what: any(record.message.startswith(what) for record in caplog.records), what)  # type: ignore[misc]
        assert running.is_alive()
        agent.stop()
        running.join(patience())
    assert not running.is_alive()
    assert TOKEN not in caplog.text


def test_an_incarnation_that_no_report_can_hold_is_not_taken(tmp_path: Path) -> None:
    answers = iter([HIGHEST_INCARNATION, 10**30, HIGHEST_INCARNATION - 1])

    def answer(connection: socket.socket, request: bytes) -> None:
        reply = {"accepted": True, "assignmentVersion": 0, "now": "2026-01-01T00:00:00Z"}
        body = msgspec.json.encode(reply)[:-1] + b', "incarnation": %d}' % next(answers)
        connection.sendall(ok(body))

    with copy_that(answer) as port:
        agent = agent_of(tmp_path, port)
        link = Link(f"http://127.0.0.1:{port}", TOKEN)
        before = StateFolder(tmp_path).memory().incarnation
        agent.report_once(link)
        agent.report_once(link)
        assert StateFolder(tmp_path).memory().incarnation == before
        agent.report_once(link)
        assert StateFolder(tmp_path).memory().incarnation == HIGHEST_INCARNATION


TWICE = (AssignedInstance("one", 0), AssignedInstance("one", 1))


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (Assignment("node-1", 1, 1, 1, instances=(TWICE[0],)), ""),
        (Assignment("node-2", 1, 1, 1), "it is for node node-2"),
        (Assignment("node-1", 1, 1, 1, instances=TWICE), "instance one occurs twice"),
        (Assignment("node-1", 1, 1, 1, instances=TWICE[:1], swapped=TWICE[1:]), "instance one occurs twice"),
        (Assignment("node-1", 1, 1, 1, gpus=(AssignedGpu(3), AssignedGpu(3))), "GPU 3 occurs twice"),
    ],
)
def test_an_assignment_that_contradicts_itself_is_refused(offered: Assignment, why: str) -> None:
    assert find_contradiction("node-1", offered) == why


def test_an_unsound_assignment_changes_nothing_on_disk(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, 9)
    assert agent.offer(Assignment("node-1", 5, 9, 9, instances=TWICE)) is AssignmentVerdict.UNSOUND
    assert (StateFolder(tmp_path).memory().epoch, agent.assignment) == (0, None)
    assert agent.offer(Assignment("node-1", 6, 1, 1)) is AssignmentVerdict.TAKE
