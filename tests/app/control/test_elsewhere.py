"""Plans avoid GPUs where copies of a service failed lately, and no service goes without because of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from app.control.cycle import CycleBudget
from app.control.decide.last_question import LastQuestion
from app.control.decide.resting import starting_services
from app.control.domain.decision import SolverAnswer
from app.control.domain.desired import Desired
from app.control.domain.ports import Meanwhile, just_wait
from app.control.domain.snapshot import Snapshot
from app.control.formulate.formulate import formulate
from app.control.solve.inline import Inline
from solvers.planning.problem import Problem
from tests.app.control.cycles import one_cycle
from tests.app.control.decide.test_choosing import GPUS, NODES, SERVICES, in_force
from tests.app.control.test_certificates import OneMoment
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

PLACES = [(node, gpu) for node in NODES for gpu in range(GPUS)]
ROUNDING_SHARE = 1e-4


class Counting(Inline):
    """A solver that counts the searches for whole plans."""

    solved = 0

    def solve(
        self, problem: Problem, *, seconds: float, work: int | None, seed: int = 0, meanwhile: Meanwhile = just_wait
    ) -> SolverAnswer:
        self.solved += 1
        return super().solve(problem, seconds=seconds, work=work, seed=seed, meanwhile=meanwhile)


def decided(now: Snapshot) -> Desired:
    store = OneMoment(now)
    one_cycle(store, Inline(), lambda known: now.expected, LastQuestion(), CycleBudget(work=2))
    return store.decisions[0].desired if store.decisions else now.in_force


def served(desired: Desired, rates: Mapping[str, float]) -> dict[str, float]:
    """Returns the rate of each service that its copies carry, of its rate at most."""
    carried = dict.fromkeys(rates, 0.0)
    for wanted in desired.values():
        for line in wanted.instances:
            carried[line.owner] += line.rate_per_second
    return {name: min(carried[name], rate) for name, rate in rates.items()}


def test_no_service_is_served_less_because_copies_of_it_failed_on_some_gpus() -> None:
    r = Random(5)
    avoided = 0
    for case in range(scaled(2_000, 40)):
        rates = {name: rate * r.choice((0.6, 1.0, 1.5)) for name, rate in SERVICES.items()}
        now = in_force(r, rates)
        failed = {name: tuple(sorted(r.sample(PLACES, r.randint(1, 3)))) for name in r.sample(sorted(rates), 2)}
        after = replace(now, failed_places=failed)
        usual, other = decided(now), decided(after)
        least = served(usual, rates)
        assert all(rate >= least[name] * (1 - ROUNDING_SHARE) for name, rate in served(other, rates).items()), case
        was_back, is_back = (starting_services(after, desired) for desired in (usual, other))
        avoided += bool(was_back) and not is_back
    assert avoided > 5


def counted(now: Snapshot) -> tuple[int, int]:
    """Returns how many plans a cycle records, and how often it asks the solver for a whole one."""
    store, solver = OneMoment(now), Counting()
    one_cycle(store, solver, lambda known: now.expected, LastQuestion(), CycleBudget(work=2))
    return len(store.decisions), solver.solved


def test_a_declared_change_reaches_a_copy_where_an_earlier_change_failed() -> None:
    now = in_force(Random(3), SERVICES)
    runtime = {"template": "gpuwright-serve", "args": {"threads": "2"}}
    declared = tuple(
        replace(item, spec={"variants": [{"name": "v", "accuracy": 0.8, "runtime": runtime}]})
        if (item.kind, item.name) == ("Model", "m-a")
        else item
        for item in now.declared
    )
    places = tuple(
        (node, line.gpu) for node, wanted in now.in_force.items() for line in wanted.instances if line.owner == "shop/a"
    )
    updated = replace(now, declared=declared, failed_places={"shop/a": places}, resting={})
    found = decided(updated)
    lines = [line for wanted in found.values() for line in wanted.instances if line.owner == "shop/a"]
    assert lines
    assert all(line.args == runtime["args"] for line in lines)


def test_what_only_cost_decides_is_not_searched_again_for_gpus_that_failed() -> None:
    r = Random(5)
    searched = 0
    for _ in range(scaled(200, 10)):
        now = replace(in_force(r, SERVICES), resting={})
        question = formulate(now)
        if question.falls_short:
            continue
        failed = replace(now, failed_places=dict.fromkeys(SERVICES, tuple(PLACES)))
        assert counted(failed) == counted(now)
        searched += 1
    assert searched > 3
