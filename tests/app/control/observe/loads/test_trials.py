"""Evidence of a copy on trial: whole minutes of it, and misses only where they are certain."""

from __future__ import annotations

import msgspec

from app.control.domain.readings import CopyTrial
from app.control.observe.loads.trials import Trials
from tests.app.control.rollout.fleets import an_instance
from tests.support.words import fast, received_report, served

ON_TRIAL = {"i-1": an_instance("i-1", rate=100)}  # 98 % within 80 ms


def after(*minutes: tuple[int, int], errors: int = 0) -> dict[str, CopyTrial]:
    """The evidence after minutes with so many answers in time, and so many late."""
    trials = Trials()
    assert trials.of(ON_TRIAL) == {}
    trials.take(received_report("n", 50, served(5000, latency_ms=500)).report)
    for number, (soon, late) in enumerate(minutes, 1):
        counts = [
            first + other for first, other in zip([*fast(soon), *[0] * 40], [*fast(late, 500), *[0] * 40], strict=False)
        ]
        trials.take(
            received_report("n", 60 * number + 55, served(soon + late, latencyCounts=counts, errors=errors)).report
        )
    return trials.of(ON_TRIAL)


def test_the_first_reported_minute_does_not_count() -> None:
    assert after() == {}
    assert after((500, 0)) == {"i-1": CopyTrial(500, 100.0)}


def test_minutes_add_up_and_a_later_word_of_a_minute_replaces_the_one_before() -> None:
    assert after((500, 0), (300, 3)) == {"i-1": CopyTrial(803, 100 * (800 / 803))}
    trials = Trials()
    trials.of(ON_TRIAL)
    for seconds, count in ((50, 9), (70, 100), (90, 300)):
        trials.take(received_report("n", seconds, served(count)).report)
    assert trials.of(ON_TRIAL) == {"i-1": CopyTrial(300, 100.0)}


def test_errors_are_misses() -> None:
    assert after((1000, 0), errors=1000)["i-1"].within_percent == 50.0


def test_misses_that_chance_may_have_made_say_nothing() -> None:
    assert after((195, 5)) == {}
    assert after((600, 400))["i-1"].within_percent == 60.0


def test_misses_of_what_is_asked_more_than_was_planned_for_say_nothing() -> None:
    assert after((6000, 4000)) == {}


def test_of_a_language_model_the_smaller_share_counts_that_of_first_tokens_or_that_of_the_pace() -> None:
    on_trial = {"i-1": msgspec.structs.replace(ON_TRIAL["i-1"], tpot_ms=50.0)}
    for paced, pace_late, within in ((500, 0, 100.0), (500, 200, 60.0)):
        trials = Trials()
        trials.of(on_trial)
        for minute in (0, 60):
            line = served(500, paced=paced, paceLate=pace_late)
            trials.take(received_report("n", minute + 55, line).report)
        assert trials.of(on_trial)["i-1"].within_percent == within


def test_what_is_not_on_trial_any_more_is_forgotten() -> None:
    trials = Trials()
    trials.of(ON_TRIAL)
    trials.take(received_report("n", 50, served(100)).report)
    assert trials.of({}) == {}
    trials.of(ON_TRIAL)
    trials.take(received_report("n", 110, served(100)).report)
    assert trials.of(ON_TRIAL) == {}
