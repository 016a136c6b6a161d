"""Token rotation against a real server: killed at every line, and with answers lost on the way."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest

from agents.control import rotation
from agents.control.join import join
from agents.control.rotation import is_due, rotate
from agents.host import durable
from agents.node import state_folder
from agents.node.state_folder import Credential, NextToken, StateFolder
from agents.talk.link import Link, LinkError
from tests.support.server import RunningServer
from tests.support.soak import scaled
from tests.support.world import gpu_type

SPEC = {"gpuType": "v100-16gb", "gpus": 4, "cpuCores": 48, "memoryGib": 256}
START = datetime(2026, 6, 1, tzinfo=UTC)
KILLS_A_LINE = scaled(10, 1)
TRACED = {rotation.__file__, state_folder.__file__, durable.__file__}


@pytest.fixture
def folder(api: RunningServer, tmp_path: Path) -> StateFolder:
    """Of a node that has joined."""
    assert api.request("POST", "/api/v1/apply", [gpu_type()]).status == 200
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    made = StateFolder(tmp_path / "agent")
    join(made, api.url, token, "node-1", SPEC)
    return made


def credential(folder: StateFolder) -> Credential:
    found = folder.credential()
    assert found is not None
    return found


def turn(folder: StateFolder) -> Credential:
    link = Link(credential(folder).server, credential(folder).token)
    try:
        return rotate(folder, link)
    finally:
        link.close()


def works(api: RunningServer, token: str) -> bool:
    return api.request("GET", "/api/v1/whoami", token=token).status == 200


def alarms(api: RunningServer) -> list[Any]:
    entries = api.request("GET", "/api/v1/audit?limit=500").json["items"]
    return [entry for entry in entries if entry["outcome"] == "alarm"]


def long_after(api: RunningServer, given_up: str) -> None:
    """The agent was down for longer than the minute that an old token has left once the new one was used."""
    with psycopg.connect(api.database_url) as connection:
        connection.execute(
            "UPDATE token SET expires_at = now() WHERE id = %(id)s AND EXISTS ("
            "SELECT FROM token AS successor WHERE successor.replaces = %(id)s AND taken_up_at IS NOT NULL)",
            {"id": given_up.split("_")[1]},
        )


@pytest.mark.parametrize(
    ("days", "wanted"), [(0, False), (14.9, False), (15, True), (29, True), (31, True), (-400, False)]
)
def test_a_token_is_due_at_half_of_its_life(days: float, wanted: bool) -> None:
    held = Credential("http://h", "node-1", "t", issued_at=START, expires_at=START + timedelta(days=30))
    assert is_due(held, START + timedelta(days=days)) is wanted


def test_a_token_without_an_end_is_never_due_and_an_unfinished_turn_always() -> None:
    assert not is_due(Credential("http://h", "node-1", "t"), START + timedelta(days=4000))
    assert is_due(Credential("http://h", "node-1", "t", next=NextToken("n")), START)


@pytest.mark.slow
def test_case_24_the_new_token_is_kept_and_the_old_one_ends(api: RunningServer, folder: StateFolder) -> None:
    before = credential(folder)
    assert before.issued_at and before.expires_at and before.expires_at - before.issued_at == timedelta(days=30)
    after = turn(folder)
    assert credential(folder) == after
    assert (after.node, after.server, after.next) == (before.node, before.server, None)
    assert after.token != before.token and works(api, after.token)
    assert (folder.path / "credential.json").stat().st_mode & 0o777 == 0o600
    assert before.token.encode() not in (folder.path / "credential.json").read_bytes()
    assert alarms(api) == []


@pytest.mark.slow
def test_case_24_a_successor_that_became_void_is_dropped_and_another_one_asked_for(
    api: RunningServer, folder: StateFolder
) -> None:
    """As when a request from before the restart arrives after the current one, and voids the token that one gave."""
    before = credential(folder)
    link = Link(before.server, before.token)
    void = link.request("POST", "/api/v1/nodes/node-1/token", b"{}")
    link.request("POST", "/api/v1/nodes/node-1/token", b"{}")
    link.close()
    folder.keep_credential(Credential(before.server, "node-1", before.token, next=NextToken(_token(void.body))))
    with pytest.raises(LinkError) as caught:
        turn(folder)
    assert (caught.value.status, credential(folder).token, credential(folder).next) == (401, before.token, None)
    assert works(api, turn(folder).token)


@pytest.mark.slow
def test_a_server_that_knows_no_turns_leaves_all_as_it_is(folder: StateFolder, api: RunningServer) -> None:
    before = credential(folder)
    link = Link(before.server, before.token)
    folder.keep_credential(Credential(before.server, "node-2", before.token))
    with pytest.raises(LinkError) as caught:
        rotate(folder, link)
    link.close()
    assert caught.value.status == 403
    assert credential(folder).token == before.token and works(api, before.token)


@pytest.mark.slow
def test_case_24_killed_at_any_line_the_node_is_never_locked_out(api: RunningServer, folder: StateFolder) -> None:
    for line in _lines_until_done(folder):
        assert line < 400, "a turn never ends"
        kept = credential(folder)
        assert works(api, kept.token) or (kept.next is not None and works(api, kept.next.token))
        if kept.next is not None:
            long_after(api, kept.token)
            assert works(api, turn(folder).token)  # what an agent does first when it starts
    assert line > 60, "the lines of the turn were not seen"
    assert credential(folder).next is None
    assert alarms(api) == []


def _lines_until_done(folder: StateFolder) -> Iterator[int]:
    """Die at the first line of a turn, at the second, and so on until a turn is over before its end comes."""
    line = 0
    while True:
        line += 1
        for _ in range(KILLS_A_LINE):
            if not _killed_at(line, folder):
                return
            yield line


def _killed_at(line: int, folder: StateFolder) -> bool:
    """A turn in a process of its own that is killed when it reaches its n-th line."""
    child = os.fork()
    if child == 0:
        try:
            sys.settrace(_Killer(line).calls)
            turn(folder)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


class _Killer:
    """Counts the lines of the rotation and of the code that writes its files."""

    def __init__(self, left: int) -> None:
        self._left = left

    def calls(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._lines if frame.f_code.co_filename in TRACED else None

    def _lines(self, _frame: FrameType, event: str, _argument: Any) -> Any:
        if event == "line":
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self._lines


def _token(body: bytes) -> str:
    return body.split(b'"token":"')[1].split(b'"')[0].decode()
