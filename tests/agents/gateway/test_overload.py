"""Copies whose batches are unknown: an overload is known within seconds, a burst is none, and capacity is measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from agents.gateway.overload import Pressure, ReadyCopy, ServiceLoad, ServiceTarget, update_pressure
from tests.support.soak import scaled

SLO = 0.2
LOOK = 0.5
STEP = 0.02


@dataclass
class Queue:
    """Copies that answer so many a second between them, one after the other, behind a gateway."""

    copies: dict[str, float]
    seed: int = 0
    open: float = 0.0
    ended: int = 0
    turned_away: int = 0
    late: int = 0
    at: float = 0.0
    pressure: Pressure | None = None
    part: float = 0.0  # of a request that is answered

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    def advance(self, seconds: float, rate: Callable[[float], float], noise: float = 0.0) -> list[int]:
        """The limit after each look."""
        found = []
        for _ in range(round(seconds / LOOK)):
            now_rate = rate(self.at) * (1 + noise * self._rng.standard_normal())
            for _ in range(round(LOOK / STEP)):
                self._step(int(self._rng.poisson(max(0.0, now_rate) * STEP)))
            self.at += LOOK
            ready = {name: ReadyCopy(rate) for name, rate in self.copies.items()}
            counted = ServiceLoad(self.ended, self.turned_away, int(self.open), ready)
            self.pressure = update_pressure(self.pressure, counted, ServiceTarget(SLO), self.at)
            found.append(self.pressure.most_open)
        return found

    def _step(self, come: int) -> None:
        most = self.pressure.most_open if self.pressure else 0
        let_in = come if not most else max(0, min(come, most - int(self.open)))
        self.turned_away += come - let_in
        self.ended += come - let_in
        capacity = sum(self.copies.values())
        self.late += let_in if self.open / capacity > SLO else 0
        # Who is let in is open for as long as a batch takes at least.
        answered = min(self.open + let_in, capacity * STEP, (self.open + let_in) * STEP / (SLO / 2))
        self.open += let_in - answered
        self.part += answered
        self.ended += int(self.part)
        self.part -= int(self.part)


def test_more_than_is_answered_is_turned_away_within_seconds_and_who_is_let_in_is_in_time() -> None:
    queue = Queue({"a": 200.0, "b": 200.0})
    assert not any(queue.advance(30, lambda _: 300.0))
    assert queue.advance(4, lambda _: 600.0)[-1] == pytest.approx(400 * SLO, rel=0.15)
    queue.advance(2, lambda _: 600.0)
    late, ended, turned = queue.late, queue.ended, queue.turned_away
    assert all(queue.advance(60, lambda _: 600.0))
    assert queue.late - late <= 0.01 * (queue.ended - ended)
    answered = (queue.ended - ended) - (queue.turned_away - turned)
    assert answered >= 0.95 * 400 * 60, "copies have enough to do"


def test_it_is_over_once_no_request_has_to_be_turned_away() -> None:
    queue = Queue({"a": 400.0})
    queue.advance(10, lambda _: 300.0)
    assert queue.advance(10, lambda _: 800.0)[-1]
    assert queue.advance(10, lambda _: 300.0)[-1] == 0
    assert not any(queue.advance(60, lambda _: 300.0))


def test_copies_that_come_raise_the_limit_at_once() -> None:
    queue = Queue({"a": 200.0})
    queue.advance(10, lambda _: 150.0)
    before = queue.advance(10, lambda _: 700.0)[-1]
    queue.copies |= {"b": 200.0, "c": 200.0}
    assert queue.advance(LOOK, lambda _: 700.0)[-1] == pytest.approx(3 * before, rel=0.15)


def test_a_copy_that_goes_lowers_the_limit() -> None:
    queue = Queue({"a": 200.0, "b": 200.0})
    queue.advance(10, lambda _: 300.0)
    before = queue.advance(10, lambda _: 700.0)[-1]
    del queue.copies["b"]
    assert queue.advance(LOOK, lambda _: 700.0)[-1] == pytest.approx(before / 2, rel=0.15)


def test_batches_that_become_known_in_an_overload_do_not_end_it() -> None:
    queue = Queue({"a": 200.0})
    queue.advance(10, lambda _: 150.0)
    assert queue.advance(10, lambda _: 700.0)[-1]
    counted = ServiceLoad(queue.ended, queue.turned_away, int(queue.open), {"a": ReadyCopy(200.0, in_time=40)})
    known = update_pressure(queue.pressure, counted, ServiceTarget(SLO), queue.at + LOOK)
    assert (known.most_open, known.by_copy) == (40, {"a": 40})


@pytest.mark.parametrize("noise", [0.02, 0.1])
@pytest.mark.parametrize("rate", [3.0, 30.0, 300.0])
def test_a_steady_load_is_never_limited(noise: float, rate: float) -> None:
    for seed in range(scaled(100, 1)):
        queue = Queue({"a": rate / 0.8}, seed=seed)
        assert not any(queue.advance(120, lambda _: rate, noise))


def test_a_burst_that_is_over_within_a_second_is_no_overload() -> None:
    queue = Queue({"a": 400.0})
    assert not any(queue.advance(120, lambda at: 700.0 if at % 20 < 0.5 else 250.0))


def test_a_burst_that_a_slow_service_answers_in_time_is_no_overload() -> None:
    pressure: Pressure | None = None
    for look in range(240):
        waiting = 20 if look % 40 < 5 else 0  # twenty at once, answered together after 2.5 s
        counted = ServiceLoad(20 * (look // 40 + (waiting == 0)), 0, waiting, {"a": ReadyCopy(1.0)})
        pressure = update_pressure(pressure, counted, ServiceTarget(3.0), look * LOOK)
        assert pressure.most_open == 0


def test_a_gateway_that_starts_again_forgets_the_overload() -> None:
    queue = Queue({"a": 200.0})
    queue.advance(20, lambda _: 600.0)
    pressure = queue.pressure
    assert pressure
    assert pressure.most_open
    counted = ServiceLoad(0, 0, 3, {"a": ReadyCopy(200.0)})
    restarted = update_pressure(pressure, counted, ServiceTarget(SLO), queue.at + LOOK)
    assert (restarted.most_open, restarted.capacity) == (0, 0.0)


@pytest.mark.parametrize(("waiting", "expected"), [(16, [0] * 30), (17, [0] * 3 + [8] * 10 + [0] * 17)])
def test_where_batches_are_unknown_it_begins_over_twice_the_least_limit_and_ends_after_five_calm_seconds(
    waiting: int, expected: list[int]
) -> None:
    pressure, limited = None, []
    for look in range(30):
        counted = ServiceLoad(0, 0, waiting if look < 4 else 0, {"a": ReadyCopy(1.0)})
        pressure = update_pressure(pressure, counted, ServiceTarget(1.0), look * LOOK)
        limited.append(pressure.most_open)
    assert limited == expected


def test_copies_that_are_all_replaced_are_taken_for_as_fast_as_those_before() -> None:
    before = Pressure(1.0, 5, 0, 0, {"a": ReadyCopy(1.0)}, answered_rate=10.0, capacity=10.0)
    after = update_pressure(before, ServiceLoad(10, 0, 0, {"b": ReadyCopy(9.0)}), ServiceTarget(1.0), 1.5)
    assert (after.answered_rate, after.capacity) == pytest.approx((10.0, 10.0))
    half = update_pressure(before, ServiceLoad(10, 0, 0, {"a": ReadyCopy(0.5)}), ServiceTarget(1.0), 1.5)
    assert half.capacity == pytest.approx(10.0), "copies are the same"
