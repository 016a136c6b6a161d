"""Copies whose batches are known: in an overload each has no more open than it answers in time, else all that come."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np
import pytest

from agents.gateway.overload import (
    Pressure,
    ReadyCopy,
    ServiceLoad,
    ServiceTarget,
    find_in_time,
    update_pressure,
)
from tests.support.soak import scaled

LOOK_SECONDS = 0.5


@dataclass
class BatchCopy:
    """A batch server: free again after `exec_s`, it takes what waits, up to `batch`."""

    batch: int
    exec_s: float
    in_time: int
    weight: float = 1.0
    waiting: deque[float] = field(default_factory=deque)
    running: list[float] = field(default_factory=list)
    free: float = float("inf")

    @property
    def open(self) -> int:
        return len(self.waiting) + len(self.running)

    def start(self, now: float) -> None:
        if not self.running and self.waiting:
            self.running = [self.waiting.popleft() for _ in range(min(self.batch, len(self.waiting)))]
            self.free = now + self.exec_s


@dataclass
class Service:
    """A gateway that looks twice a second, and sends each request to the next copy by weight that has room."""

    copies: dict[str, BatchCopy]
    target: ServiceTarget
    seed: int = 0
    at: float = 0.0
    in_time: int = 0
    late: int = 0
    turned_away: int = 0
    arrived: int = 0
    pressure: Pressure | None = None

    def __post_init__(self) -> None:
        self._rng = np.random.default_rng(self.seed)

    @property
    def capacity(self) -> float:
        return sum(copy.batch / copy.exec_s for copy in self.copies.values())

    @property
    def is_limited(self) -> bool:
        return bool(self.pressure and self.pressure.most_open)

    def advance(self, seconds: float, rate: float) -> int:
        """Lets time pass; returns at how many looks the service was limited."""
        limited = 0
        for _ in range(round(seconds / LOOK_SECONDS)):
            until = self.at + LOOK_SECONDS
            come = np.sort(self._rng.uniform(self.at, until, self._rng.poisson(rate * LOOK_SECONDS)))
            for moment in come:
                self._answer(float(moment))
                self._admit(float(moment))
            self._answer(until)
            self.at = until
            ended = self.in_time + self.late + self.turned_away
            ready = {name: ReadyCopy(copy.weight, copy.in_time) for name, copy in self.copies.items()}
            waiting = sum(copy.open for copy in self.copies.values())
            counted = ServiceLoad(ended, self.turned_away, waiting, ready)
            self.pressure = update_pressure(self.pressure, counted, self.target, self.at)
            limited += self.is_limited
        return limited

    def _admit(self, now: float) -> None:
        self.arrived += 1
        names = list(self.copies)
        weights = np.array([copy.weight for copy in self.copies.values()])
        first = int(self._rng.choice(len(names), p=weights / weights.sum()))
        for step in range(len(names)):
            name = names[(first + step) % len(names)]
            copy = self.copies[name]
            if not self.is_limited or (self.pressure and copy.open < self.pressure.by_copy.get(name, 512)):
                copy.waiting.append(now)
                copy.start(now)
                return
        self.turned_away += 1

    def _answer(self, until: float) -> None:
        while (copy := min(self.copies.values(), key=lambda copy: copy.free)).free <= until:
            now = copy.free
            for came in copy.running:
                self.in_time += now - came <= self.target.slo_seconds + 1e-9
                self.late += now - came > self.target.slo_seconds + 1e-9
            copy.running, copy.free = [], float("inf")
            copy.start(now)


def captions(copies: int = 4, percentile: float = 95.0, is_short: bool = False, seed: int = 0) -> Service:
    """Batches of four in 0.55 s, within 1.5 s: two batches, and not quite three."""
    return Service(
        {f"c{number}": BatchCopy(4, 0.55, 8) for number in range(copies)},
        ServiceTarget(1.5, percentile, is_short),
        seed,
    )


@pytest.mark.slow
@pytest.mark.parametrize("times", [1.15, 1.5, 4.0])
def test_in_an_overload_what_is_admitted_is_in_time_and_copies_have_enough_to_do(times: float) -> None:
    service = captions()
    service.advance(60, 0.6 * service.capacity)
    service.advance(60, times * service.capacity)
    in_time, late = service.in_time, service.late
    assert service.advance(120, times * service.capacity) == 240
    assert service.late - late <= 0.01 * (service.in_time - in_time)
    assert service.in_time - in_time >= 0.93 * 120 * service.capacity


@pytest.mark.slow
@pytest.mark.parametrize("times", [0.95, 1.05])
def test_a_limit_stays_while_requests_are_turned_away(times: float) -> None:
    """Where about as much comes as can be answered, the load seems to fit again and again, and without limits none is
    in time."""
    service = Service({name: BatchCopy(8, 0.0165, 16) for name in "ab"}, ServiceTarget(0.04, 99.5))
    service.advance(20, 0.6 * service.capacity)
    service.advance(20, 1.2 * service.capacity)
    in_time, late = service.in_time, service.late
    service.advance(60, times * service.capacity)
    assert service.late - late <= 0.01 * (service.in_time - in_time)


def test_a_copy_gets_no_more_than_it_answers_in_time_whatever_its_weight() -> None:
    service = Service(
        {"slow": BatchCopy(4, 0.7, 8, weight=9.0), "fast": BatchCopy(8, 0.3, 40, weight=1.0)}, ServiceTarget(1.5, 95.0)
    )
    service.advance(60, 1.5 * service.capacity)
    in_time, late = service.in_time, service.late
    service.advance(120, 1.5 * service.capacity)
    assert service.late - late <= 0.01 * (service.in_time - in_time)
    assert service.in_time - in_time >= 0.93 * 120 * service.capacity


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(scaled(20, 2)))
def test_what_the_percentile_forgives_is_not_turned_away(seed: int) -> None:
    service = captions(percentile=90.0, seed=seed)
    assert service.advance(600, 0.78 * service.capacity) == 0
    assert service.late > 0, "bursts make some late"
    assert service.turned_away == 0


def test_a_low_percentile_forgives_long_bursts() -> None:
    """Too many are open two thirds of the time: at a percentile of 99 that is an overload, at one of 50 it is none."""

    def begins(percentile: float) -> bool:
        pressure: Pressure | None = None
        for look in range(600):
            too_many = 100 if look % 3 < 2 else 4
            counted = ServiceLoad(20 * look, 0, too_many, {"a": ReadyCopy(1.0, 16)})
            pressure = update_pressure(pressure, counted, ServiceTarget(1.0, percentile), look * LOOK_SECONDS)
            if pressure.most_open:
                return True
        return False

    assert begins(99.0)
    assert not begins(50.0)


def test_a_burst_that_is_over_soon_is_no_overload() -> None:
    service = captions()
    for _ in range(20):
        assert service.advance(1, 2.0 * service.capacity) == 0
        assert service.advance(20, 0.4 * service.capacity) == 0


def test_what_the_plan_cannot_serve_is_limited_from_the_first_look() -> None:
    assert captions(is_short=True).advance(5, 40.0) == 10
    unknown = ServiceLoad(0, 0, 3, {"a": ReadyCopy(4.0)})
    assert update_pressure(None, unknown, ServiceTarget(1.5, 95.0, is_short=True), 1.0).most_open == 0


@pytest.mark.parametrize("share", [0.3, 0.7])
def test_it_ends_when_all_would_be_answered_without_a_limit(share: float) -> None:
    """Although the limit itself may turn away some of what comes in bursts."""
    service = captions(copies=1)
    service.advance(60, 4.0 * service.capacity)
    assert service.is_limited
    service.advance(60, share * service.capacity)
    assert not service.is_limited


@pytest.mark.slow
def test_it_goes_on_while_too_many_come() -> None:
    service = captions()
    service.advance(30, 1.2 * service.capacity)
    assert service.advance(600, 1.2 * service.capacity) == 1200


def test_a_copy_that_the_plan_does_not_know_counts_by_its_weight() -> None:
    ready = {"a": ReadyCopy(4.0, 8), "b": ReadyCopy(2.0, 6), "old": ReadyCopy(3.0)}
    assert find_in_time(ready) == {"a": 8, "b": 6, "old": 7}
    assert find_in_time({"old": ReadyCopy(3.0)}) == {}
    assert find_in_time({"a": ReadyCopy(4.0, 8), "small": ReadyCopy(0.01)}) == {"a": 8, "small": 1}


def test_an_overload_begins_and_ends_at_the_looks_that_its_rules_say() -> None:
    """Twenty times as many as are answered in time begin it after 1.5 seconds. Thirty might wait without a limit, and
    ten of them are answered a second. Once all are in time, it ends after four times what it took to begin."""
    pressure, limited = None, []
    for look in range(40):
        counted = ServiceLoad(0, 0, 200 if look < 4 else 0, {"a": ReadyCopy(1.0, 10)})
        pressure = update_pressure(pressure, counted, ServiceTarget(1.0, 99.0), look * LOOK_SECONDS)
        assert pressure.by_copy == ({"a": 10} if pressure.most_open else {})
        limited.append(pressure.most_open)
    assert limited == [0] * 3 + [10] * 16 + [0] * 21


def test_a_look_at_the_same_moment_changes_nothing_and_without_an_slo_there_is_no_overload() -> None:
    before = Pressure(1.0, 5, 0, 3, {"a": ReadyCopy(1.0, 10)}, over_seconds=1.0, most_open=10, by_copy={"a": 10})
    counted = ServiceLoad(9, 0, 50, {"a": ReadyCopy(1.0, 10)})
    assert update_pressure(before, counted, ServiceTarget(1.0), 1.0) is before
    assert update_pressure(before, counted, ServiceTarget(0.0), 2.0) == Pressure(2.0, 9, 0, 50, counted.ready)


def test_a_copy_that_comes_or_goes_changes_the_limit_at_the_next_look() -> None:
    service = captions(copies=2)
    service.advance(20, 40.0)
    service.copies["new"] = BatchCopy(4, 0.55, 8)
    service.advance(LOOK_SECONDS, 40.0)
    assert service.pressure
    assert (service.pressure.most_open, len(service.pressure.by_copy)) == (24, 3)
    del service.copies["c0"]
    service.advance(LOOK_SECONDS, 40.0)
    assert service.pressure.by_copy == {"c1": 8, "new": 8}
