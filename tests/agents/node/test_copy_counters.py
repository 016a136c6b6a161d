"""Counters of copies: a silent gateway rarely delays the reading of devices, and a job's first progress is news."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from agents.keeper.filler import Filler
from agents.node.copy_counters import GATEWAY_PAUSE_SECONDS, CopyCounters
from agents.node.report_minute import ReportMinute
from agents.seams.routes import RoutesAway
from agents.seams.traffic import Counters
from agents.talk.copy_client import TcpCopyClient
from tests.support.simulated_processes import Behaviour
from tests.support.virtual import job, virtual

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def test_a_gateway_that_did_not_answer_is_asked_again_after_a_rest_only() -> None:
    asked_at: list[int] = []
    second, away = 0, True

    def counters() -> Mapping[str, Counters]:
        asked_at.append(second)
        if away:
            raise RoutesAway("it hangs")
        return {}

    census, minute = CopyCounters(TcpCopyClient(), Filler({}, "127.0.0.1"), counters), ReportMinute(NOON, {})
    for second in range(12):
        census.refresh([], float(second), minute)
    assert asked_at == [0, GATEWAY_PAUSE_SECONDS, 2 * GATEWAY_PAUSE_SECONDS]
    away = False
    for second in range(15, 18):
        census.refresh([], float(second), minute)
    assert asked_at[3:] == [15, 16, 17]


def test_the_first_progress_of_a_job_is_reported_early_and_what_it_does_next_in_turn(tmp_path: Path) -> None:
    with virtual(tmp_path) as made:
        made.behaviours["train"] = Behaviour(steps_per_second=50)
        made.offer(job("train"))
        for _ in made.passes(30):
            if made.ready:
                break
        news, copy, units = made.node.ledger.news, made.copy("train").id, made.node.counters.units
        for _ in made.passes(30):
            if first := units(copy):
                break
            news.clear()
        assert first > 0
        assert news.is_set()
        news.clear()
        made.advance(60)
        assert units(copy) > first
        assert not news.is_set()
