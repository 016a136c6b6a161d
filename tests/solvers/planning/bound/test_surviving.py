"""What survives the loss of a node in the bound: rows of instances and of what they could carry, and their lines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.families import family
from solvers.latency.kernels import accepted_load
from solvers.planning import bound
from solvers.planning.availability import Availability
from solvers.planning.bound.fleet import class_of, fleet
from solvers.planning.bound.rounding import surviving_nodes
from solvers.planning.fleet.grids import SM
from solvers.planning.judge import judge
from solvers.planning.judge.tolerances import SURVIVING_UTILIZATION
from solvers.planning.parts.bound import relax_to_needed
from solvers.planning.plan import Plan
from solvers.planning.problem import GpuType, Instance, Node, Problem, Profile, Service, Variant, gpu_indexes
from solvers.planning.search.tables import tables
from solvers.planning.steps import surviving

SURVIVING = Availability(survive_nodes=1)


@given(
    st.lists(st.lists(st.floats(0.001, 3), min_size=1, max_size=4), min_size=2, max_size=9), st.floats(0.1, 200),
    st.floats(0.1, 1),
)  # fmt: skip
def test_nodes_of_which_none_is_needed_fill_the_row(nodes: list[list[float]], by: float, served: float) -> None:
    """Each node has instances of some capacity; all of them together are scaled to be just enough."""
    total = sum(map(sum, nodes))
    least = min(total - sum(node) for node in nodes)
    each = [capacity * served / least for node in nodes for capacity in node]
    filled = sum(1 + by * min(1.0, capacity) for capacity in each)
    assert filled >= surviving(np.array([by * served]), np.array([len(nodes)]))[0]


@pytest.mark.parametrize("nodes", range(2, 8))
def test_a_row_is_filled_exactly_by_even_capacities_on_its_nodes(nodes: int) -> None:
    for by in (nodes * (nodes - 1.0), 1e6):
        even = nodes * (1 + by / (nodes - 1))
        assert surviving(np.array([by]), np.array([nodes]))[0] == pytest.approx(even, rel=2e-6)


def asking(problem: Problem) -> Problem:
    services = {name: replace(service, availability=SURVIVING) for name, service in problem.services.items()}
    return replace(problem, services=services)


@pytest.mark.slow
def test_no_batch_carries_more_than_its_line_when_a_node_is_lost() -> None:
    f = fleet(tables(asking(family("A", 8, 4, 1))))
    t, rng, seen = f.tables, np.random.default_rng(0), 0
    for m in f.markets:
        for _ in range(4):
            lo = float(rng.uniform(0, 1.5))
            c = class_of(f, m, lo, lo + float(rng.uniform(0.05, 1)))
            for offer, x in zip(rng.integers(m.first, m.last, 60), rng.integers(10, SM, 60), strict=True):
                profile, service = t.offer_profile[offer], t.offer_service[offer]
                for pressure in np.linspace(c.lo, c.hi, 7):
                    others = pressure - t.pressure[profile, x].real
                    if others < 0:
                        continue
                    exec_ms = t.exec_ms[profile, :, x] * (1 + t.sensitivity[profile].real * others)
                    most = 0.0
                    for b in range(len(t.batches)):
                        ratio = t.slo_ms[service] / (exec_ms[b] * t.margin)
                        if ratio >= 1 and accepted_load(t.loads[t.percentile_row[service], b], ratio) > 0:
                            most = max(most, SURVIVING_UTILIZATION * 1000 * t.batches[b] / exec_ms[b])
                    share = (pressure - c.lo) / (c.hi - c.lo)
                    row = offer - m.first
                    line = c.spare_lo[row, x] * (1 - share) + c.spare_hi[row, x] * share
                    assert min(most, f.need[service]) <= line * (1 + 1e-6)
                    seen += most > 0
    assert seen > 1000


def one_service(slow: int = 1, fast: int = 2, **fields: Any) -> Problem:
    """Returns a service that a fast GPU carries alone, and a slow one only while its SLO does not count."""
    kinds = {name: GpuType(name, 16, 0, 500, (1000.0,)) for name in ("fast", "slow")}
    names = [("fast", 2.0, n) for n in range(fast)] + [("slow", 0.3, n) for n in range(slow)]
    service = Service("s/m", "s", "m", ("v",), 100.0, 99.0, 100.0, availability=SURVIVING)
    return Problem(
        gpu_types=kinds,
        nodes={f"{kind}-{n}": Node(f"{kind}-{n}", kind, gpu_indexes(1), 64, 512, price) for kind, price, n in names},
        models={"m": (Variant("v", 1.0),)},
        profiles={
            ("m", "v", "fast"): Profile("m", "v", "fast", {8: ((50, 80.0), (100, 40.0))}, {8: 0.5}),
            ("m", "v", "slow"): Profile("m", "v", "slow", {16: ((50, 190.0), (100, 94.0))}, {16: 0.5}),
        },
        services={"s/m": replace(service, **fields)},
    )


def on(node: str, batch: int, rate: float) -> Instance:
    return Instance(f"s/m/{node}", "s/m", node, 0, "v", batch, 0.0, 100, 0.5, 1000.0, rate)


def bound_of(problem: Problem) -> float:
    return list(bound.rounds(tables(relax_to_needed(problem)), 200_000))[-1].bound


def test_a_copy_that_serves_nearly_nothing_may_be_what_survives() -> None:
    """The second largest instance need not carry half an even share where one instance is asked for."""
    problem = one_service()
    plan = Plan((on("fast-0", 8, 99.95), on("slow-0", 16, 0.05)))
    assert judge(problem, plan).violations == ()
    assert bound_of(problem) == pytest.approx(2.3)


def test_without_such_a_copy_both_nodes_carry_all() -> None:
    assert bound_of(one_service(slow=0)) == pytest.approx(4.0)


@pytest.mark.parametrize("is_dedicated", [False, True])
def test_what_is_left_without_a_node_is_paid_for(is_dedicated: bool) -> None:
    """A fast GPU carries 190 a second at utilization 0.95, and 160 as it is: four for 600, but five to survive."""
    problem = one_service(slow=0, fast=7, slo_ms=1000.0, rate_per_second=600.0, is_dedicated=is_dedicated)
    plain = replace(problem, services={"s/m": replace(problem.services["s/m"], availability=Availability())})
    assert bound_of(plain) == pytest.approx(8.0)
    assert bound_of(problem) == pytest.approx(10.0)


def test_no_spot_node_counts_for_a_service_that_must_not_use_one() -> None:
    problem = one_service(slow=2, availability=Availability(max_spot_share=0.0), slo_ms=1000.0)
    nodes = {
        name: replace(node, purchase="spot" if "slow" in name else "owned") for name, node in problem.nodes.items()
    }
    assert bound_of(replace(problem, nodes=nodes)) == pytest.approx(2.0)
    anywhere = replace(problem.services["s/m"], availability=Availability())
    assert bound_of(replace(problem, nodes=nodes, services={"s/m": anywhere})) == pytest.approx(0.3)


def test_a_row_knows_the_nodes_that_may_run_its_service() -> None:
    for gpu_types, nodes in ((None, 5), (("slow",), 3)):
        found = surviving_nodes(fleet(tables(one_service(slow=3, gpu_types=gpu_types))))
        assert set(found.nodes.tolist()) == {nodes}
