"""The least that a pool's nodes could have cost, had their needs been known: whole nodes, starts and minimum terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solvers.integer_program import IntegerProgram

MOST_TREE_NODES = 10_000
GAP_SHARE = 1e-6


@dataclass(frozen=True, slots=True)
class HindsightRental:
    """How many nodes begin and stand in each slot, what they cost, and a bound on the cost of any."""

    starts: tuple[int, ...]
    nodes: tuple[int, ...]
    cost: float
    bound: float


def find_hindsight(needs: Sequence[int], price: float, term_slots: int) -> HindsightRental | None:
    """Returns the cheapest rental that meets these needs, in nodes a slot; None if the search found none.

    `price` is that of a node for a slot, and a node is paid for `term_slots` at least. A term that the last slot cuts
    short is paid whole.
    """
    if not needs:
        return HindsightRental((), (), 0.0, 0.0)
    program, term = IntegerProgram(), max(1, term_slots)
    rest = [price * max(0, slot + term - len(needs)) for slot in range(len(needs))]
    starts = [program.variable(cost, max(needs), is_whole=True) for cost in rest]
    nodes = [program.variable(price, is_whole=True) for _ in needs]
    for slot, need in enumerate(needs):
        program.row([(nodes[slot], 1)], least=need)  # needs_are_met
        before = [(nodes[slot - 1], -1.0)] if slot else []
        program.row([(nodes[slot], 1), *before, (starts[slot], -1)], most=0)  # growth_has_started
        recent = starts[max(0, slot - term + 1) : slot + 1]
        program.row([(nodes[slot], 1), *((start, -1.0) for start in recent)], least=0)  # terms_are_kept
    found = program.solve(MOST_TREE_NODES, GAP_SHARE)
    if found is None:
        return None
    begun, standing = (tuple(round(found.values[name]) for name in names) for names in (starts, nodes))
    cost = sum(price * count for count in standing) + sum(
        extra * count for extra, count in zip(rest, begun, strict=True)
    )
    return HindsightRental(begun, standing, cost, found.bound)
