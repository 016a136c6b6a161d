"""Which models meet next: every pair, every share, then what tells most; foreseen slowdowns end it."""

from __future__ import annotations

from itertools import combinations, product

from solvers.interference import Neighbour, SlowdownObservation
from solvers.interference.meetings import Guest, Meeting, next_meeting
from solvers.interference.scalars import pressure_and_sensitivity
from tests.solvers.interference.families import declared_slowdown

SHARES = (20, 50)
ACCURACY = 0.04
MOST = 40
PAIRS = [
    Meeting((Guest(one, share), Guest(other, its)))
    for one, other in combinations(("a", "b", "c"), 2)
    for share, its in product(SHARES, SHARES)
]
TRIOS = [Meeting((Guest("a", 20), Guest("b", 20), Guest("c", share))) for share in SHARES]


def held_one_after_the_other(
    meetings: list[Meeting], slows: bool = True, accuracy: float = ACCURACY, most: int = MOST
) -> tuple[list[Meeting], list[SlowdownObservation]]:
    """Holds the meetings that are chosen until none is; with `slows` the models slow each other as declared."""
    held: list[Meeting] = []
    seen: list[SlowdownObservation] = []
    while (chosen := next_meeting(meetings, held, seen, accuracy, most)) is not None:
        held.append(chosen)
        for run in chosen.runs:
            slowdown = declared_slowdown(run.model, tuple(Neighbour(n.model, n.sm_percent) for n in run.neighbours))
            seen.append(SlowdownObservation(run, slowdown if slows else 1.0))
    return held, seen


def test_every_pair_meets_and_every_share_presses_before_it_counts_as_foreseen() -> None:
    for slows in (True, False):
        held, _ = held_one_after_the_other(PAIRS + TRIOS, slows)
        guests = {guest for meeting in held for guest in meeting.guests}
        assert {(guest.model, guest.sm_percent) for guest in guests} == set(product("abc", SHARES))
        assert {tuple(g.model for g in m.guests) for m in held} >= {("a", "b"), ("a", "c"), ("b", "c")}
        assert len(held) == len(set(held)), "each is held once"
        assert len(held) < len(PAIRS), "it ends when the rest is foreseen"


def test_what_was_not_held_is_foreseen() -> None:
    held, seen = held_one_after_the_other(PAIRS + TRIOS, accuracy=0.01)
    found = pressure_and_sensitivity(seen)
    for meeting in PAIRS:
        for run in meeting.runs if meeting not in held else ():
            (other,) = run.neighbours
            feels, presses = found[run.model].sensitivity, found[other.model].pressure[other.sm_percent]
            assert feels
            told = 1 + feels.mean * presses.mean
            assert abs(told / declared_slowdown(run.model, run.neighbours) - 1) < 0.05


def test_it_ends_at_the_most_and_begins_with_nothing_known() -> None:
    assert len(held_one_after_the_other(PAIRS, accuracy=1e-9, most=5)[0]) == 5
    assert next_meeting([], [], [], ACCURACY, MOST) is None
