"""A batch is made once waiting for it has cost as much as its churn: at most twice the better of waiting and moving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from math import ceil
from random import Random

import pytest

from app.control.domain.regret import LEAD_HOURS, LEAST_WAITING, NO_REGRETS
from solvers.planning.batches.batch import WHOLE, Batch, BatchGroup, BatchKind
from tests.support.soak import scaled

START = datetime(2026, 6, 1, tzinfo=UTC)
CYCLE_HOURS = 30 / 3600
CASES = scaled(10_000, 1_000)


def group(*gpus: int) -> tuple[BatchGroup, ...]:
    return (BatchGroup(tuple(("node-0", gpu) for gpu in gpus), BatchKind.SOLVED),)


def moment(cycle: int) -> datetime:
    return START + timedelta(hours=cycle * CYCLE_HOURS)


@dataclass(frozen=True)
class Followed:
    """The cost of one batch on a trace of what it would save in each cycle: an account in plain sums."""

    waited: float  # what it would have saved until it was made
    churn: float  # 0 if it was not made
    still_saved: float  # from then on

    @property
    def total(self) -> float:
        return self.waited + self.churn


def follow(trace: list[float], churn: float) -> Followed:
    """Keeps the account of a batch that saves so much an hour, cycle by cycle, and then nothing any more."""
    accounts = NO_REGRETS
    for cycle, saved in enumerate(trace):
        accounts = accounts.measured(moment(cycle), [Batch(group(0), saved, churn)], LEAST_WAITING)
        if accounts.due(moment(cycle)):
            return Followed(sum(trace[:cycle]) * CYCLE_HOURS, churn, sum(trace[cycle:]) * CYCLE_HOURS)
    return Followed(sum(trace) * CYCLE_HOURS, 0.0, 0.0)


def adversarial(rng: Random) -> tuple[list[float], float]:
    """A trace that ends at any moment, also right after the batch was made, and a churn about as large as its sum."""
    saved = rng.choice([0.1, 0.5, 3.0])
    trace = [saved * rng.choice([1.0, 1.0, rng.uniform(0.05, 4.0)]) for _ in range(rng.randrange(1, 25))]
    churn = rng.choice([0.2, 0.9, 1.0, 1.1, 5.0]) * sum(trace) * CYCLE_HOURS * rng.uniform(0.5, 1.5)
    if rng.random() < 0.5:  # it ends in the cycle in which the batch is made
        made = follow(trace, churn)
        while len(trace) > 1 and made.churn and made.still_saved > trace[-1] * CYCLE_HOURS * 1.5:
            trace.pop()
            made = follow(trace, churn)
    return trace, churn


def test_a_batch_costs_at_most_twice_the_cheaper_of_waiting_and_switching_on_adversarial_traces() -> None:
    for seed in range(CASES):
        trace, churn = adversarial(Random(seed))
        found = follow(trace, churn)
        cheaper = min(sum(trace) * CYCLE_HOURS, churn)
        steps = max(trace) * CYCLE_HOURS  # a batch is looked at once in a cycle
        promised = max(trace) * LEAD_HOURS  # for which the loads are predicted
        broken = max(0.0, promised - found.still_saved) if found.churn else 0.0
        assert found.total <= 2 * cheaper + steps + broken + 1e-12, seed


def test_loads_that_go_back_and_forth_make_nothing_due() -> None:
    for cycles in (1, 2, 5, 9):
        saved = 1.0
        churn = saved * (cycles * CYCLE_HOURS + LEAD_HOURS) * 1.1
        accounts = NO_REGRETS
        for cycle in range(1_000):
            is_possible = cycle // cycles % 2 == 0
            accounts = accounts.measured(
                moment(cycle), [Batch(group(0, 1), saved, churn)] if is_possible else [], LEAST_WAITING
            )
            assert not accounts.due(moment(cycle)), (cycles, cycle)


def test_what_is_paid_in_the_long_run_was_waited_for_or_is_repaid_within_the_lead() -> None:
    for seed in range(CASES // 50):
        rng = Random(seed)
        accounts, waited, paid = NO_REGRETS, 0.0, 0.0
        groups = [group(gpu, gpu + 1) for gpu in range(0, 8, 2)]
        for cycle in range(200):
            there = [Batch(row, rng.uniform(0.1, 3.0), rng.uniform(0.01, 0.5)) for row in groups if rng.random() < 0.7]
            accounts = accounts.measured(moment(cycle), there, LEAST_WAITING)
            waited += sum(batch.saved_per_hour for batch in there) * CYCLE_HOURS
            for batch in accounts.due(moment(cycle)):
                paid += max(0.0, batch.churn - batch.saved_per_hour * LEAD_HOURS)
                accounts = accounts.made(batch)
        assert paid <= waited + 1e-9, seed


def test_a_batch_that_takes_the_place_of_another_goes_on_with_its_account() -> None:
    first, second, elsewhere = Batch(group(0, 1, 2), 1.0, 9.0), Batch(group(0, 1, 3), 1.0, 9.0), group(6, 7)
    accounts = NO_REGRETS.measured(moment(0), [first], LEAST_WAITING).measured(moment(1), [first], LEAST_WAITING)
    accounts = accounts.measured(moment(2), [second, Batch(elsewhere, 1.0, 9.0)], LEAST_WAITING)
    regrets = {entry.batch.groups: entry.regret for entry in accounts.waiting}
    assert abs(regrets[second.groups] - 2 * CYCLE_HOURS) < 1e-12
    assert regrets[elsewhere] == 0.0
    assert first.groups not in regrets


def test_a_batch_that_has_no_order_of_steps_is_due_again_after_it_has_cost_its_churn() -> None:
    batch = Batch(group(0, 1), 6.0, 0.22)
    accounts = NO_REGRETS.measured(moment(0), [batch], LEAST_WAITING)
    assert accounts.due(moment(0)) == (batch,), "its churn is repaid within the lead"
    accounts = accounts.refused(batch)
    due = []
    for cycle in range(1, 20):
        accounts = accounts.measured(moment(cycle), [batch], LEAST_WAITING)
        due.append(bool(accounts.due(moment(cycle))))
    assert due.index(True) + 1 == ceil(batch.churn / batch.saved_per_hour / CYCLE_HOURS)


def test_a_batch_goes_on_to_cost_its_saving_while_the_question_stays_the_same() -> None:
    batch = Batch(group(0, 1), 1.0, 10 * CYCLE_HOURS + LEAD_HOURS)
    accounts = NO_REGRETS.measured(moment(0), [batch], LEAST_WAITING)
    cycle = 0
    while not accounts.due(moment(cycle)):
        cycle += 1
        accounts = accounts.waited(moment(cycle))
    assert cycle in (10, 11), "rounding aside, when it has cost its churn"
    gone = (
        NO_REGRETS.measured(moment(0), [batch], LEAST_WAITING)
        .measured(moment(1), [batch], LEAST_WAITING)
        .measured(moment(2), [], LEAST_WAITING)
    )
    assert not gone.waited(moment(100)).due(moment(100)), "it is not possible any more"


def test_making_a_batch_ends_what_others_waited_for_on_its_gpus_alone() -> None:
    first, inside, half, apart = (Batch(group(*gpus), 1.0, 9.0) for gpus in ((0, 1), (1,), (1, 2), (3, 4)))
    accounts = NO_REGRETS.measured(moment(0), [first, inside, half, apart], LEAST_WAITING)
    accounts = accounts.measured(moment(1), [first, inside, half, apart], LEAST_WAITING)
    waiting = {entry.batch: entry for entry in accounts.made(first).waiting}
    assert waiting.keys() == {half, apart}
    assert waiting[apart].regret == pytest.approx(CYCLE_HOURS)
    assert waiting[half].regret == pytest.approx(CYCLE_HOURS / 2)
    assert not waiting[half].is_possible, "until it is measured again"


def test_unserved_load_makes_a_batch_due_but_is_no_regret() -> None:
    relief = Batch(group(0), 0.1, 0.4, relief_per_hour=900.0)
    accounts = NO_REGRETS.measured(moment(0), [relief], LEAST_WAITING)
    assert accounts.due(moment(0)) == (relief,)
    served_since = replace(relief, relief_per_hour=0.0)
    assert accounts.measured(moment(1), [served_since], LEAST_WAITING).due(moment(1)) == ()


def test_of_batches_that_save_the_same_the_one_with_fewer_changes_is_made_and_waits_less() -> None:
    few, many = Batch(group(0), 1.0, 0.02, effort=0.1), Batch(group(1), 1.0, 0.02, effort=0.5)
    accounts, due = NO_REGRETS, []
    for cycle in range(40):
        accounts = accounts.measured(moment(cycle), [many, few], LEAST_WAITING)
        due.append(accounts.due(moment(cycle)))
    assert due[0] == (few,), "its price is repaid within the lead"
    waited = (many.price - LEAD_HOURS) / CYCLE_HOURS
    assert next(cycle for cycle, batches in enumerate(due) if many in batches) == ceil(waited)
    assert due[-1] == (few, many)


def test_a_whole_plan_waits_beside_batches_in_the_same_account() -> None:
    batch = Batch(group(0), 1.0, 9.0)
    accounts = NO_REGRETS.measured(moment(0), [batch, Batch(WHOLE, 3.0, 9.0)], 1)
    assert len(accounts.waiting) == 2, "a whole plan takes no batch's place"
    accounts = accounts.measured(moment(1), [Batch(WHOLE, 2.0, 9.0)], LEAST_WAITING)
    (whole,) = accounts.waiting
    assert whole.regret == pytest.approx(3.0 * CYCLE_HOURS)
    unknown = accounts.measured(moment(2), [batch], LEAST_WAITING, looks_for_whole=False)
    assert unknown.waiting[0].regret == pytest.approx(whole.regret + 2.0 * CYCLE_HOURS)
    gone = accounts.measured(moment(2), [batch], LEAST_WAITING)
    assert [(entry.regret, entry.is_possible) for entry in gone.waiting] == [
        (pytest.approx(CYCLE_HOURS), False),
        (0.0, True),  # no batch takes the place of a whole plan
    ]
    assert unknown.made(batch).waiting == unknown.waiting[:1]
    assert unknown.made(whole.batch).waiting == unknown.waiting[1:]
