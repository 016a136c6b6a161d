"""`gpuwright planner`: waits for a database that is away at its start, and refuses what waiting would not mend."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.embedded import EmbeddedPostgres
from app.store.database import schema
from cli.leading import set_at_signals
from tests.support.forked import ROOT, Forked
from tests.support.patience import patience, until


@contextmanager
def planner(url: str, log: Path) -> Iterator[Forked]:
    environment = {**os.environ, "DATABASE_URL": url, "GPUWRIGHT_DATABASE_DIRECT": "1"}
    log.touch()
    process = Forked(["planner"], ROOT, environment, log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def events(log: Path) -> list[str]:
    whole, _, _ = log.read_text().rpartition("\n")
    return [json.loads(line)["event"] for line in whole.splitlines()]


@pytest.mark.slow
def test_a_planner_waits_for_a_database_that_is_away_logs_it_once_and_then_leads(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    log, folder = tmp_path / "planner.log", tmp_path / "data"
    with EmbeddedPostgres(folder) as server:
        schema.migrate(server.url)
        url = server.url
    with planner(url, log) as process:
        until(lambda: "database_away" in events(log), "it says so")
        with EmbeddedPostgres(folder):
            until(lambda: "leader" in events(log), "it leads")
            assert [one for one in events(log) if one.startswith("database")] == ["database_away", "database_back"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(patience()) == 0


def test_a_planner_ended_while_it_waits_ends_well_and_logs_no_password(tmp_path: Path) -> None:
    log = tmp_path / "planner.log"
    with planner("postgresql://gpuwright:canary-password@127.0.0.1:1/gpuwright", log) as process:
        until(lambda: "database_away" in events(log), "it says so")
        process.send_signal(signal.SIGTERM)
        assert process.wait(patience()) == 0
    assert "canary-password" not in log.read_text()
    assert "refused" in log.read_text(), "the cause is told"


def test_a_signal_ends_a_wait_that_holds_its_own_lock_just_then() -> None:
    ended, before = threading.Event(), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        set_at_signals(ended)
        with vars(ended)["_cond"]:  # as a wait does when it begins and when it ends
            os.kill(os.getpid(), signal.SIGTERM)
        assert ended.wait(patience())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_a_database_without_migrations_is_refused_with_the_command(empty_database_url: str, tmp_path: Path) -> None:
    log = tmp_path / "planner.log"
    with planner(empty_database_url, log) as process:
        assert process.wait(patience()) == 3
    assert "run: gpuwright db migrate" in log.read_text()
