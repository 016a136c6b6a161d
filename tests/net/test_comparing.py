"""What the net catches, shown on answers of one line: each fault is told with the record's name and what changed."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.net.answers import Answer
from tests.net.comparing import FIGURES, Comparison, find_faults, find_sum_faults

RECORDED = Answer(
    name="demo/3", outcome="rolling", cost=10.0, unserved=0.0, served_per_second=50.0, job=0.4, churn=0.5, bound=9.5,
    changes={"keep": 4, "move": 1},
    broken=("latency_holds at shop/search on node-1/0",), placements=("shop/search on node-1/0",),
    counts={"calls": 10_000, "steps": 40},
)  # fmt: skip
ELSEWHERE = Comparison(is_same_origin=False)
LATER = Comparison(compared=FIGURES)


def change(**fields: Any) -> Answer:
    return msgspec.structs.replace(RECORDED, **fields)


def test_the_same_answer_has_no_fault() -> None:
    assert find_faults(RECORDED, RECORDED, Comparison()) == []


@pytest.mark.parametrize(
    ("now", "sentence"),
    [
        (change(cost=10.1), "cost 10.1, recorded 10"),
        (change(cost=9.8), "another decision: cost 9.8, recorded 10"),
        (change(churn=0.6), "another decision: churn 0.6, recorded 0.5"),
        (change(outcome="unchanged"), "another decision: unchanged, recorded rolling"),
        (change(bound=9.4), "bound 9.4, recorded 9.5"),
        (change(bound=None), "bound none, recorded 9.5"),
        (change(bound=10.2, broken=()), "bound 10.2 is above the cost 10 of a right plan"),
        (change(cost=9.0, unserved=1.0), "unserved load costs 1, recorded 0"),
        (change(served_per_second=49.0), "49 requests a second served, recorded 50"),
        (change(job=0.5), "jobs cost 0.5, recorded 0.4"),
        (change(broken=("memory_fits at node-2/1",)), "breaks memory_fits at node-2/1"),
        (change(counts={"calls": 11_001, "steps": 40}), "work: 11,001 calls, recorded 10,000"),
        (change(cost=None, outcome="refused"), "refused, recorded rolling"),
    ],
)
def test_what_is_worse_is_told_with_both_amounts(now: Answer, sentence: str) -> None:
    assert sentence in find_faults(RECORDED, now, Comparison())


@pytest.mark.parametrize(
    "now",
    [
        change(placements=("shop/search on node-2/0",)),  # exactly as good
        change(cost=10.0 + 1e-9),
        change(bound=9.499),
        change(bound=9.9),
        change(broken=()),
        change(counts={"calls": 10_900}),
        change(counts={"calls": 100, "steps": 199}),
    ],
)
def test_what_is_as_good_passes(now: Answer) -> None:
    assert find_faults(RECORDED, now, Comparison()) == []


def test_on_another_processor_figures_are_compared_and_decisions_are_not() -> None:
    other = change(cost=9.99, churn=0.4, placements=("shop/search on node-2/0",), changes={"move": 3})
    assert find_faults(RECORDED, other, ELSEWHERE) == []
    assert find_faults(RECORDED, change(cost=10.1), ELSEWHERE) == ["cost 10.1, recorded 10"]


def test_where_decisions_may_differ_hand_overs_are_still_compared() -> None:
    assert find_faults(RECORDED, change(cost=9.9, churn=0.4), LATER) == []
    assert find_faults(RECORDED, change(changes={"move": 2, "resize": 1}), LATER) == ["3 hand-overs, recorded 1"]


def test_a_small_loss_of_every_answer_is_told_of_their_sum() -> None:
    assert find_faults(RECORDED, change(cost=10.015), LATER) == []
    assert find_sum_faults([RECORDED] * 10, [change(cost=10.015)] * 10, FIGURES) == ["cost 100.15, recorded 100"]


def test_losses_and_gains_that_cancel_are_as_good_in_sum() -> None:
    assert find_sum_faults([RECORDED] * 2, [change(cost=10.015), change(cost=9.985)], FIGURES) == []
