"""The rate that an instance may carry: the compiled loop against the latency function, batch by batch."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from solvers.latency import max_rate
from solvers.planning.search.arrays import world
from solvers.planning.search.capacity import best_rate
from solvers.planning.search.tables import Tables, tables
from tests.solvers.planning.random_problems import random_problem


def asked_by_batch(t: Tables, offer: int, sm: int, pressure: complex, clock: float) -> float:
    profile, service = t.offer_profile[offer], t.problem.services[t.services[t.offer_service[offer]]]
    most = 0.0
    for place, batch in enumerate(t.batches):
        feels = complex(t.sensitivity[profile])
        slower = 1 + feels.real * pressure.real + feels.imag * pressure.imag
        exec_ms = float(t.exec_ms[profile, place, sm]) * slower
        exec_ms *= clock ** float(t.clock_exponent[profile])
        if np.isfinite(exec_ms):
            slo = max_rate(int(batch), exec_ms * t.margin, service.slo_ms, service.percentile)[0]
            most = max(most, min(slo, 1000 * t.utilization * batch / exec_ms))
    return min(most, service.rate_per_second / service.min_instances)


@pytest.mark.parametrize("seed", range(12))
def test_the_best_rate_is_the_most_of_all_batches(seed: int) -> None:
    t = tables(random_problem(seed))
    w, r = world(t), Random(seed)
    for _ in range(min(40, 40 * len(t.offer_service))):
        offer, sm = r.randrange(len(t.offer_service)), r.randint(1, 100)
        pressure, clock = complex(r.uniform(0, 3), r.uniform(0, 2)), r.choice([1.0, 1.5])
        found = best_rate(w, offer, sm, pressure, clock, np.inf)[0]
        assert found == pytest.approx(asked_by_batch(t, offer, sm, pressure, clock), rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_more_pressure_or_less_memory_never_carries_more(seed: int) -> None:
    t = tables(random_problem(seed))
    w, r = world(t), Random(seed)
    for _ in range(min(40, 40 * len(t.offer_service))):
        offer, sm = r.randrange(len(t.offer_service)), r.randint(1, 100)
        pressure = complex(r.uniform(0, 2), r.uniform(0, 2))
        free = best_rate(w, offer, sm, pressure, 1.0, np.inf)[0]
        for more in (0.3, 0.3j):
            assert best_rate(w, offer, sm, pressure + more, 1.0, np.inf)[0] <= free
        assert best_rate(w, offer, sm, pressure, 1.0, 1.0)[0] <= free


def test_the_tables_do_not_depend_on_the_order_of_a_file() -> None:
    problem = random_problem(7)
    turned = replace(
        problem,
        services=dict(reversed([*problem.services.items()])),
        nodes=dict(reversed([*problem.nodes.items()])),
        profiles=dict(reversed([*problem.profiles.items()])),
        models=dict(reversed([*problem.models.items()])),
        gpu_types=dict(reversed([*problem.gpu_types.items()])),
    )
    found, other = tables(problem), tables(turned)
    assert (
        found.services == other.services and found.pools == other.pools and found.offer_variant == other.offer_variant
    )
    assert np.array_equal(found.exec_ms, other.exec_ms) and np.array_equal(found.offer_service, other.offer_service)
