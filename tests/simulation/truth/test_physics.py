"""The physics of simulated GPUs: what any GPU does, in every draw."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from simulation.truth.fitting import KnownFigures
from simulation.truth.memory import recall, remember
from simulation.truth.physics import Physics, RunningLoad

POINTS = {
    1: ((10, 21.0), (20, 11.2), (40, 8.4), (100, 7.9)),
    8: ((10, 96.0), (20, 49.0), (40, 27.5), (100, 22.1)),
    32: ((10, 350.0), (20, 178.0), (40, 95.0), (100, 71.0)),
}
SEEDS = (0, 1, 7, 19)
MODELS = tuple((name, "fp16", "v100") for name in ("a", "b", "c", "d"))
A = MODELS[0]


def physics(seed: int) -> Physics:
    made = Physics(seed)
    made.add_gpu("v100", 40.0, 300.0, 1530.0)
    for place, key in enumerate(MODELS):
        scale = 1.0 + place
        points = {batch: [(percent, ms * scale) for percent, ms in curve] for batch, curve in POINTS.items()}
        made.add_model(key, KnownFigures(points, 180.0))
    return made


@pytest.mark.parametrize("seed", SEEDS)
def test_times_are_near_those_that_give_the_scale_and_not_equal(seed: int) -> None:
    made = physics(seed)
    errors = [made.alone_ms(A, b, sm) / ms - 1 for b, curve in POINTS.items() for sm, ms in curve]
    assert max(np.abs(errors)) < 0.45
    assert abs(float(np.median(errors))) < 0.2
    assert max(np.abs(errors)) > 0.005


@pytest.mark.parametrize("seed", SEEDS)
def test_more_sms_are_never_slower_and_larger_batches_and_lower_clocks_never_faster(seed: int) -> None:
    made = physics(seed)
    by_share = [made.alone_ms(A, 8, percent) for percent in range(5, 101, 5)]
    assert all(more <= less * (1 + 1e-9) for less, more in pairwise(by_share))
    by_batch = [made.alone_ms(A, batch, 50) for batch in (1, 2, 4, 8, 16, 32, 64)]
    assert all(small < large for small, large in pairwise(by_batch))
    by_clock = [made.alone_ms(A, 8, 50, clock) for clock in (600, 900, 1200, 1530)]
    assert all(low > high for low, high in pairwise(by_clock))


@pytest.mark.parametrize("seed", SEEDS)
def test_neighbours_slow_each_other_and_slowdowns_do_not_add_up(seed: int) -> None:
    made = physics(seed)
    group = [RunningLoad(key, 32, 25) for key in MODELS]
    alone = [made.together([one]).times_ms[0] for one in group]
    together = [now / then for now, then in zip(made.together(group).times_ms, alone, strict=True)]
    assert all(slow >= 1 - 1e-9 for slow in together)
    assert max(together) > 1.001
    pairs = [made.together([group[0], other]).times_ms[0] / alone[0] - 1 for other in group[1:]]
    assert together[0] - 1 != pytest.approx(sum(pairs), rel=0.01)


def test_slowdowns_by_bandwidth_saturate() -> None:
    """However many neighbours press, each has its part, so n equal loads take at most about n times as long."""
    made = physics(3)
    for count in (2, 4):
        group = [RunningLoad(key, 32, 100 // count) for key in MODELS[:count]]
        for one, now in zip(group, made.together(group).times_ms, strict=True):
            assert now / made.together([one]).times_ms[0] < count + 1


def test_a_seed_draws_the_same_whatever_else_is_asked_and_seeds_differ() -> None:
    first, second = physics(5), physics(5)
    second.alone_ms(MODELS[2], 4, 30)
    assert first.alone_ms(A, 8, 40) == second.alone_ms(A, 8, 40)
    assert first.alone_ms(A, 8, 40) != physics(6).alone_ms(A, 8, 40)


def test_what_is_declared_later_changes_nothing() -> None:
    made = physics(1)
    made.add_model(A, KnownFigures({1: [(100, 500.0)]}))
    assert made.alone_ms(A, 8, 40) == physics(1).alone_ms(A, 8, 40)


def test_an_idle_neighbour_slows_nothing_and_a_busy_one_always() -> None:
    made, random = physics(2), np.random.default_rng(1)
    mine = RunningLoad(A, 32, 40)
    alone = made.together([mine]).times_ms[0]
    busy = made.together([mine, RunningLoad(MODELS[1], 32, 40)]).times_ms[0]
    idle = made.sample_ms(mine, [RunningLoad(MODELS[1], 32, 40, busy=0.0)], 1530, random, 16)
    assert idle.tolist() == [alone] * 16
    assert made.sample_ms(mine, [RunningLoad(MODELS[1], 32, 40, busy=1.0)], 1530, random, 16).tolist() == [busy] * 16
    half = made.sample_ms(mine, [RunningLoad(MODELS[1], 32, 40, busy=0.5)], 1530, random, 400).mean()
    assert alone < half < busy


@pytest.mark.parametrize("seed", SEEDS)
def test_power_follows_activity_and_clock_and_stays_within_the_limit(seed: int) -> None:
    made = physics(seed)
    assert made.watts("v100", []) == 40
    one = RunningLoad(A, 32, 50, busy=0.5)
    full = RunningLoad(A, 32, 100)
    assert 40 < made.watts("v100", [one]) < made.watts("v100", [full]) <= 300
    assert made.watts("v100", [full], 900) < made.watts("v100", [full])
    assert made.watts("v100", [RunningLoad(key, 32, 25) for key in MODELS]) <= 300


def test_a_gpu_at_its_limit_of_power_is_slower() -> None:
    cool, hot = Physics(4), Physics(4)
    cool.add_gpu("v100", 40.0, 300.0, 1530.0)
    hot.add_gpu("v100", 40.0, 120.0, 1530.0)
    for made in (cool, hot):
        made.add_model(A, KnownFigures(POINTS, 250.0))
    assert hot.alone_ms(A, 32, 100) > 1.1 * cool.alone_ms(A, 32, 100)


def test_the_scale_of_models_is_kept_in_a_file(tmp_path: Path) -> None:
    made, again = physics(8), Physics(8)
    remember(made, tmp_path / "truth.json")
    recall(again, tmp_path / "missing.json")
    recall(again, tmp_path / "truth.json")
    again.add_gpu("v100", 40.0, 300.0, 1530.0)
    assert again.alone_ms(A, 8, 40) == made.alone_ms(A, 8, 40)


def test_the_file_of_models_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path, read_meanwhile = tmp_path / "truth.json", tmp_path / "read"
    remember(physics(8), path)
    read_meanwhile.hardlink_to(path)
    before = read_meanwhile.read_bytes()
    more = physics(8)
    more.add_model(("another", "fp16", "v100"), KnownFigures(POINTS))
    remember(more, path)
    assert read_meanwhile.read_bytes() == before != path.read_bytes()


def test_impossible_figures_are_refused() -> None:
    with pytest.raises(ValueError, match="no times"):
        KnownFigures({})
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        physics(0).together([RunningLoad(A, 8, 120)])
    with pytest.raises(ValueError, match="W idle"):
        Physics(0).add_gpu("x", 50.0, 40.0, 1000.0)
