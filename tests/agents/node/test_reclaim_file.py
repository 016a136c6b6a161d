"""The file in which a node learns that its cloud takes it back: two forms are read, all else is warned of once."""

from __future__ import annotations

import logging
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agents.node.reclaim_file import BadNotice, ReclaimFile, parse_notice
from tests.support.nodes import machine, running
from tests.support.patience import patience, until

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
DEADLINE = NOW + timedelta(minutes=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "reclaim"


def watched(path: Path) -> ReclaimFile:
    return ReclaimFile(path, lambda: NOW)


@pytest.mark.parametrize(
    "content",
    [
        b"2026-06-01T12:02:00Z",
        b"  2026-06-01T14:02:00+02:00\n",
        b'{"action": "terminate", "time": "2026-06-01T12:02:00Z"}',
        b'{"time": "2026-06-01T12:02:00Z", "more": [1]}\n',
    ],
)
def test_a_time_and_the_answer_of_ec2_are_read(content: bytes) -> None:
    assert parse_notice(content) == DEADLINE


@pytest.mark.parametrize(
    "content",
    [b"", b"soon", b"2026-06-01T12:02:00", b"1780000000", b"{", b"{}", b'{"time": 5}', b"\xff\xfe", b"[]", b"\x1b[2J"],
)
def test_other_content_is_named_and_says_what_is_allowed(content: bytes) -> None:
    with pytest.raises(BadNotice) as refused:
        parse_notice(content)
    assert str(refused.value).isprintable()
    assert "2026-06-01T12:02:00Z" in str(refused.value) or "time zone" in str(refused.value)


def test_the_deadline_comes_and_goes_with_the_file(path: Path) -> None:
    file = watched(path)
    assert (file.look(), file.deadline) == (False, None)
    path.write_text("2026-06-01T12:02:00Z")
    assert (file.look(), file.deadline) == (True, DEADLINE)
    assert not file.look()
    path.unlink()
    assert (file.look(), file.deadline) == (True, None)


@pytest.mark.parametrize("content", ["later", "x" * 5000, "2026-06-09T12:00:00Z"])
def test_bad_content_warns_once_and_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture, content: str
) -> None:  # fmt: skip
    file = watched(path)
    path.write_text("2026-06-01T12:02:00Z")
    file.look()
    path.write_text(content)
    with caplog.at_level(logging.WARNING):
        assert not file.look()
        assert not file.look()
    assert file.deadline == DEADLINE
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(f"{path} says nothing about a reclaim of this node: ")
    assert len(caplog.messages[0]) < len(str(path)) + 400


def test_a_folder_in_its_place_is_a_warning(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.mkdir()
    assert not watched(path).look()
    assert "it cannot be read" in caplog.messages[0]


def test_it_is_watched_until_the_agent_stops(path: Path) -> None:
    file, stopping, changed = watched(path), threading.Event(), threading.Event()
    thread = threading.Thread(target=file.watch, args=(stopping, changed.set))
    thread.start()
    path.write_text("2026-06-01T12:02:00Z")
    assert changed.wait(patience())
    stopping.set()
    thread.join(patience())
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_running_node_reports_the_deadline_at_once(tmp_path: Path) -> None:
    path = tmp_path / "reclaim"
    deadline = datetime.now(UTC).replace(microsecond=0) + timedelta(minutes=2)
    with machine(tmp_path / "node", ["v100-16gb"]) as made, running(made, notices=ReclaimFile(path)) as node:
        assert node.report_body(*node.current_minute()).reclaim_at is None
        node.ledger.news.clear()
        path.write_text(deadline.isoformat())
        until(node.ledger.news.is_set, "it has news")
        assert node.report_body(*node.current_minute()).reclaim_at == deadline
