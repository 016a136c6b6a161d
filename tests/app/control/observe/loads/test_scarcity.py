"""Planned rates give way where others' requests find no GPU, for as long as that would come again, and no longer."""

from __future__ import annotations

from collections.abc import Collection

from app.control.domain.snapshot import ExpectedLoad
from app.control.observe.loads.loads import Loads
from app.control.observe.loads.scarcity import GIVING_SECONDS, LASTING_SECONDS, Scarcity
from tests.support.words import at, gateway, readings

BIG, SMALL = "shop/big", "shop/small"


def all_of_them(short: Collection[str]) -> frozenset[str]:
    assert short == [SMALL]
    return frozenset({BIG, SMALL})


def test_a_shortage_that_lasts_makes_its_rivals_give_way_for_half_an_hour() -> None:
    scarcity = Scarcity()
    assert not scarcity.find_giving([SMALL], all_of_them, 0.0)
    assert not scarcity.find_giving([SMALL], all_of_them, LASTING_SECONDS - 1)
    assert set(scarcity.find_giving([SMALL], all_of_them, LASTING_SECONDS)) == {BIG, SMALL}
    assert scarcity.find_giving([], all_of_them, LASTING_SECONDS + GIVING_SECONDS - 1)
    assert not scarcity.find_giving([], all_of_them, LASTING_SECONDS + GIVING_SECONDS)


def test_a_shortage_that_a_plan_mends_in_time_makes_no_service_give_way() -> None:
    scarcity = Scarcity()
    for now in range(0, 600, 30):
        short = [SMALL] if now % 60 else []
        assert not scarcity.find_giving(short, all_of_them, float(now))


def count(loads: Loads, start: int, stop: int, big: int, small: int) -> None:
    """A gateway that reports what arrives each second."""
    for second in range(start, stop):
        loads.take(readings(second, gateway("gw", second, big=big * second, small=small * second)))


def expect(loads: Loads, seconds: float, planned: float, served: float, declared: float = 2000.0) -> ExpectedLoad:
    """Big is planned for so much, and small gets so much of the 100 requests that arrive for it."""
    rates, short = {BIG: declared, SMALL: 100.0}, {SMALL: served} if served < 100 else {}
    ahead = {BIG: 50.0, SMALL: 50.0}
    return loads.expect(rates, {BIG: planned, SMALL: 105.0}, ahead, at(seconds), {}, short, all_of_them)[BIG]


def test_a_declared_rate_that_does_not_arrive_gives_way_after_five_minutes_and_stays_low() -> None:
    loads = Loads()
    found = []
    for begin in range(0, 600, 30):
        count(loads, begin, begin + 30, big=200, small=100)
        found.append(expect(loads, begin + 30, 2000.0 if begin < 420 else 220.0, served=0.0))
    assert all(load.rate_per_second == 2000.0 for load in found[:9]), "for five minutes its declared rate counts"
    assert found[-1].gives_way
    assert 200.0 < found[-1].rate_per_second < 240.0
    for begin in range(600, 3000, 30):
        count(loads, begin, begin + 30, big=200, small=100)
        load = expect(loads, begin + 30, 220.0, served=100.0)
    assert not load.gives_way
    assert load.rate_per_second < 240.0


def test_what_serves_the_load_that_is_surely_there_is_no_shortage() -> None:
    loads = Loads()
    for begin in range(0, 600, 30):
        count(loads, begin, begin + 30, big=200, small=50)
        load = expect(loads, begin + 30, 2000.0, served=60.0)
    assert not load.gives_way
    assert load.rate_per_second == 2000.0
