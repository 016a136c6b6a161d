"""How long nodes are silent: forgiven of the past to a new leader, which yet plans nothing new on a silent node."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.control.observe.silence import Silence

BEGAN = datetime(2026, 12, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def test_a_node_that_was_silent_before_a_leader_began_is_unheard_until_it_reports() -> None:
    silence = Silence(BEGAN)
    reports = {"here": after(0), "gone": after(-300)}
    assert silence.seconds(reports, after(1)) == {"here": 1.0, "gone": 1.0}
    assert silence.unheard(reports, after(1)) == {"gone"}
    assert not silence.unheard({"here": after(0), "gone": after(1)}, after(2))


def test_after_an_outage_no_node_is_unheard_for_another_may_be_the_first_to_report() -> None:
    silence = Silence(BEGAN)
    reports = {"first": after(-300), "second": after(-300)}
    silence.seconds(reports, after(1))
    assert silence.is_outage(after(1))
    assert not silence.unheard(reports, after(1))
    reports["first"] = after(2)
    assert silence.seconds(reports, after(3)) == {"first": 1.0, "second": 1.0}
    assert not silence.unheard(reports, after(3))
