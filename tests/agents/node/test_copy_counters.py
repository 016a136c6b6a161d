"""Counters of copies: a gateway that does not answer rarely delays the reading of the devices."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from agents.keeper.filler import Filler
from agents.node.copy_counters import GATEWAY_PAUSE_SECONDS, CopyCounters
from agents.node.report_minute import ReportMinute
from agents.seams.routes import RoutesAway
from agents.seams.traffic import Counters
from agents.talk.copy_client import TcpCopyClient

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
