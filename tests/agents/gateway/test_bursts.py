"""The gateway's measure of bursts, on arrivals whose dispersion is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from agents.gateway.bursts import SCALES, BurstMeter
from agents.gateway.desired import servers_by_name
from agents.gateway.requests import GatewayPromise, Tallies
from tests.agents.gateway.test_counting import KNOWN, LINE

SLO_MS = 50.0


def measured(arrivals: NDArray[np.float64], answers: NDArray[np.float64] | None = None) -> dict[int, float]:
    """The dispersion by scale, of arrivals in seconds that are known when they are answered."""
    meter = BurstMeter(SLO_MS)
    known = arrivals + (0.02 if answers is None else answers)
    for at in np.argsort(known):
        meter.arrived(float(arrivals[at]), float(known[at]))
    return {total.slos: total.spread / total.means for total in meter.totals()}


def gamma_gaps(variation: float, count: int, rate_per_second: float, seed: int) -> NDArray[np.float64]:
    gaps = np.random.default_rng(seed).gamma(1 / variation**2, variation**2, count)
    arrivals: NDArray[np.float64] = 100.0 + np.cumsum(gaps) / rate_per_second
    return arrivals


@pytest.mark.slow
def test_poisson_arrivals_have_a_dispersion_of_one_at_every_scale() -> None:
    found = measured(gamma_gaps(1.0, 400_000, 500.0, seed=1))
    assert set(found) == set(SCALES)
    assert list(found.values()) == pytest.approx([1.0, 1.0, 1.0], abs=0.12)


@pytest.mark.slow
def test_gaps_that_vary_twice_as_much_scatter_four_times() -> None:
    found = measured(gamma_gaps(2.0, 400_000, 2000.0, seed=2))
    assert found[4] == pytest.approx(4.0, rel=0.1)
    assert found[1] == pytest.approx(4.0, rel=0.1)


def test_a_window_that_was_not_counted_from_its_beginning_is_left_out() -> None:
    even = 100.4005 + np.arange(60_000) / 1000.0  # begins amid a window of every scale
    assert measured(even) == dict.fromkeys(SCALES, 0.0)


def test_the_order_of_the_answers_changes_nothing() -> None:
    arrivals = gamma_gaps(2.0, 50_000, 1000.0, seed=3)
    answers = np.random.default_rng(4).uniform(0.0, 0.9, len(arrivals))
    assert measured(arrivals, answers)[1] == pytest.approx(measured(arrivals)[1], rel=0.02)


@pytest.mark.slow
def test_a_rate_that_changes_slowly_is_no_burst() -> None:
    steady = gamma_gaps(1.0, 300_000, 1000.0, seed=5)
    slowly = np.interp(steady, *_clock(steady[0], steady[-1]))
    assert measured(slowly)[1] == pytest.approx(1.0, abs=0.1)


def _clock(first: float, last: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Time that passes at speeds between 0.6 and 1.4, back and forth within two minutes."""
    at = np.linspace(first, last, 10_000)
    speed = 1.0 + 0.4 * np.sin(2 * np.pi * at / 120.0)
    return at, first + np.concatenate([[0.0], np.cumsum(speed[1:]) * (at[1] - at[0])])


def test_a_load_that_grows_tenfold_in_twelve_seconds_is_no_burst() -> None:
    steady = gamma_gaps(1.0, 20_000, 1000.0, seed=8)
    at = np.linspace(0.0, 112.0, 10_000)
    rate = np.interp(at, [0.0, 100.0, 112.0], [0.1, 0.1, 1.0])
    expected = np.concatenate([[0.0], np.cumsum(rate[1:]) * at[1]])
    growing = 100.0 + np.interp(steady - steady[0], expected, at, right=np.nan)
    assert measured(growing[~np.isnan(growing)])[4] == pytest.approx(1.0, abs=0.25)


@pytest.mark.slow
def test_long_silence_is_no_burst() -> None:
    arrivals = gamma_gaps(1.0, 200_000, 1000.0, seed=6)
    arrivals[100_000:] += 3600.0
    assert measured(arrivals)[1] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(("seed", "rate"), [(0, 400.0), (1, 500.0), (2, 20.0)])
def test_totals_are_those_of_windows_counted_by_hand(seed: int, rate: float) -> None:
    arrivals = gamma_gaps(1.5, 10_000, rate, seed)
    meter = BurstMeter(SLO_MS)
    for at in arrivals:
        meter.arrived(float(at), float(at) + 0.01)
    window = SLO_MS / 1000
    numbers = (arrivals / window).astype(int)
    begun = numbers[0] + 1
    ended = int((float(arrivals[-1]) + 0.01 - 1.0) / window) - 1
    counts = np.bincount(numbers[numbers >= begun] - begun, minlength=ended - begun)[: ended - begun]
    for total in meter.totals():
        skipped = 0 if begun % total.slos == 0 else -begun % total.slos  # until the first that begins with a window
        merged = (
            counts[skipped:][: len(counts[skipped:]) // total.slos * total.slos].reshape(-1, total.slos).sum(axis=1)
        )
        # The first window of a scale was not counted from its beginning, as far as the meter knows.
        whole = merged[1:] if skipped == 0 else merged
        blocks = whole[: len(whole) // 16 * 16].reshape(-1, 16).astype(float)
        means = blocks.mean(axis=1)
        rise = ((np.arange(16) - 7.5) * blocks).sum(axis=1)
        spread = (((blocks - means[:, None]) ** 2).sum(axis=1) - rise**2 / 340) / 14
        assert total.blocks == len(blocks)
        assert (total.means, total.squares) == pytest.approx((means.sum(), (means**2).sum()))
        assert total.spread == pytest.approx(spread.sum())
    assert len(meter.totals()) == 3


def test_log_lines_are_counted_by_when_their_requests_arrived() -> None:
    known = Tallies()
    known.track(servers_by_name(KNOWN.servers()), KNOWN.slots, now=0, promises={"shop/search": GatewayPromise(SLO_MS)})
    for number, at in enumerate(gamma_gaps(1.0, 20_000, 1000.0, seed=7)):
        known.add(LINE, float(at) + 0.012)
        if number % 5000 == 0:  # what is declared again begins no new count
            known.track(servers_by_name(KNOWN.servers()), KNOWN.slots, 0, {"shop/search": GatewayPromise(SLO_MS)})
    service = next(counted for counted in known.counted() if not counted.copy)
    shortest = service.windows[0]
    assert shortest.slos == 1
    assert shortest.blocks == pytest.approx(20 / (16 * SLO_MS / 1000), abs=3)
    assert shortest.means / shortest.blocks == pytest.approx(1000 * SLO_MS / 1000, rel=0.05)
