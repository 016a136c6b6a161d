"""Models are measured in every pair, at every share, then where the error falls most; foreseen slowdowns end it."""

from __future__ import annotations

from itertools import combinations, product

from solvers.interference import Neighbour, SlowdownObservation
from solvers.interference.next_setting import SharedCopy, SharedSetting, next_shared_setting
from solvers.interference.scalars import pressure_and_sensitivity
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
    measured: list[SharedSetting] = []
    seen: list[SlowdownObservation] = []
    while (chosen := next_shared_setting(settings, measured, seen, accuracy, most)) is not None:
        measured.append(chosen)
        for run in chosen.runs:
            slowdown = declared_slowdown(run.model, tuple(Neighbour(n.model, n.sm_percent) for n in run.neighbours))
            seen.append(SlowdownObservation(run, slowdown if slows else 1.0))
    return measured, seen


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


def test_what_was_not_measured_is_foreseen() -> None:
    measured, seen = measured_in_turn(PAIRS + TRIOS, accuracy=0.01)
    found = pressure_and_sensitivity(seen)
    for setting in PAIRS:
        for run in setting.runs if setting not in measured else ():
            (other,) = run.neighbours
            sensitivity, pressure = found[run.model].sensitivity, found[other.model].pressure[other.sm_percent]
            assert sensitivity
            predicted = 1 + sensitivity.mean * pressure.mean
            assert abs(predicted / declared_slowdown(run.model, run.neighbours) - 1) < 0.05


def test_it_ends_at_the_most_and_begins_with_nothing_known() -> None:
    assert len(measured_in_turn(PAIRS, accuracy=1e-9, most=5)[0]) == 5
    assert next_shared_setting([], [], [], ACCURACY, MOST) is None
