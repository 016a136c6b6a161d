"""Models are measured in every pair, at every share, then where the error falls most; foreseen slowdowns end it."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from solvers.interference.next_setting import (
    LAST_SETTINGS,
    SharedCopy,
    SharedMeasurement,
    SharedSetting,
    next_shared_setting,
)
from solvers.interference.observation import SharedRun, SlowdownObservation
from solvers.interference.profile_factors import pressure_and_sensitivity
from tests.solvers.interference.families import declared_slowdown

SHARES = (20, 50)
ACCURACY = 0.04
MOST = 40
PAIRS = [
    SharedSetting((SharedCopy(one, share), SharedCopy(other, its)))
    for one, other in combinations(("a", "b", "c"), 2)
    for share, its in product(SHARES, SHARES)
]
TRIOS = [SharedSetting((SharedCopy("a", 20), SharedCopy("b", 20), SharedCopy("c", share))) for share in SHARES]


def measured_in_turn(
    settings: list[SharedSetting], slows: bool = True, accuracy: float = ACCURACY, most: int = MOST
) -> tuple[list[SharedSetting], list[SlowdownObservation]]:
    """Measures the settings that are chosen until none is; with `slows` the models slow each other as declared."""
    measured: list[SharedMeasurement] = []
    while (chosen := next_shared_setting(settings, measured, accuracy, most)) is not None:
        measured.append(SharedMeasurement(chosen, tuple(slowdown_of(run, slows) for run in chosen.runs)))
    return [found.setting for found in measured], [each for found in measured for each in found.slowdowns]


def slowdown_of(run: SharedRun, slows: bool) -> SlowdownObservation:
    return SlowdownObservation(run, declared_slowdown(run.model, run.neighbours) if slows else 1.0)


def test_every_pair_and_every_share_is_measured_before_slowdowns_count_as_foreseen() -> None:
    for slows in (True, False):
        measured, _ = measured_in_turn(PAIRS + TRIOS, slows)
        copies = {copy for setting in measured for copy in setting.copies}
        assert {(copy.model, copy.sm_percent) for copy in copies} == set(product("abc", SHARES))
        assert {tuple(copy.model for copy in setting.copies) for setting in measured} >= {
            ("a", "b"),
            ("a", "c"),
            ("b", "c"),
        }
        assert len(measured) == len(set(measured)), "each is measured once"
        assert len(measured) < len(PAIRS), "it ends when the rest is foreseen"


@pytest.mark.slow
def test_what_was_not_measured_is_foreseen() -> None:
    measured, seen = measured_in_turn(PAIRS + TRIOS, accuracy=0.01)
    found = pressure_and_sensitivity(seen)
    for setting in PAIRS:
        for run in setting.runs if setting not in measured else ():
            pressures = [found[each.model].pressures_at(each.sm_percent) for each in run.neighbours]
            predicted = found[run.model].slowdown_beside(pressures)
            assert abs(predicted / declared_slowdown(run.model, run.neighbours) - 1) < 0.05


def test_models_whose_slowdowns_are_the_same_at_every_batch_are_not_measured_at_all_of_them() -> None:
    batches = (1, 8, 32)
    pairs = [
        SharedSetting((SharedCopy("b", 50, one), SharedCopy("c", 50, other))) for one in batches for other in batches
    ]
    measured, _ = measured_in_turn(pairs)
    assert len(measured) == LAST_SETTINGS + 1, "the last two were foreseen by the one before them"


def test_it_ends_at_the_most_and_begins_with_nothing_known() -> None:
    assert len(measured_in_turn(PAIRS, accuracy=1e-9, most=5)[0]) == 5
    assert next_shared_setting([], [], ACCURACY, MOST) is None
