"""Plans avoid GPUs where copies of a service failed lately, and no service goes without because of that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

from app.control.cycle import CycleBudget, run_cycle
from app.control.decide.last_question import LastQuestion
from app.control.decide.resting import returning_services
from app.control.domain.desired import Desired
from app.control.domain.snapshot import Snapshot
from app.control.solve.inline import Inline
from tests.app.control.decide.test_choosing import GPUS, NODES, SERVICES, in_force
from tests.app.control.test_certificates import OneMoment
from tests.support.soak import scaled

PLACES = [(node, gpu) for node in NODES for gpu in range(GPUS)]
ROUNDING_SHARE = 1e-4


def decided(now: Snapshot) -> Desired:
    store = OneMoment(now)
    run_cycle(store, Inline(), lambda known: now.expected, LastQuestion(), CycleBudget(work=2))
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
    for case in range(scaled(2_000, 30)):
        rates = {name: rate * r.choice((0.6, 1.0, 1.5)) for name, rate in SERVICES.items()}
        now = in_force(r, rates)
        failed = {name: tuple(sorted(r.sample(PLACES, r.randint(1, 3)))) for name in r.sample(sorted(rates), 2)}
        after = replace(now, failed_places=failed)
        usual, other = decided(now), decided(after)
        least = served(usual, rates)
        assert all(rate >= least[name] * (1 - ROUNDING_SHARE) for name, rate in served(other, rates).items()), case
        was_back, is_back = (returning_services(after, desired) for desired in (usual, other))
        avoided += bool(was_back) and not is_back
    assert avoided > 5
