"""Nodes that could be returned, and the cheapest GPUs to rent for unserved load."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from app.control.tell.money import Addition, find_empty_nodes, find_releasable, pose_rental, read_rental
from app.store.database.database import Database
from app.store.plans import idle_nodes
from solvers.planning.judge import judge
from solvers.planning.plan import Plan, Releasable
from solvers.planning.problem import GpuType, Limit, Node, Problem, Profile, Service, Variant
from solvers.planning.search.promise import keep
from solvers.planning.solve import SolveBudget, solve

LATENCY = {1: ((10, 20.0), (100, 4.0)), 8: ((10, 80.0), (100, 12.0))}
SLOW = {batch: tuple((sm, ms * 3) for sm, ms in curve) for batch, curve in LATENCY.items()}
PRICES = {"big": 2.0, "old": 0.5}


def fleet(*services: Service, spare: dict[str, int], limits: dict[str, Limit] | None = None) -> Problem:
    """One big GPU that is there; old ones are a third as fast and cost a quarter."""
    return Problem(
        gpu_types={name: GpuType(name, 16.0, 40.0, 300.0, (1500.0,)) for name in ("big", "old")},
        nodes={"n1": Node("n1", "big", (0,), 16, 64, 2.0)},
        models={"m": (Variant("v", 0.8),)},
        profiles={
            profile.key: profile
            for profile in (
                Profile("m", "v", "big", LATENCY, {1: 1.0, 8: 2.0}),
                Profile("m", "v", "old", SLOW, {1: 1.0, 8: 2.0}),
            )
        },
        services={service.name: service for service in services},
        limits=limits or {},
        spare=spare,
    )


def service(name: str, rate: float, slo_ms: float = 200.0) -> Service:
    return Service(name, name.split("/")[0], "m", ("v",), slo_ms, 98.0, rate)


def rented(problem: Problem) -> tuple[Addition, Plan]:
    plan = solve(problem, SolveBudget(work=2))
    question = pose_rental(problem, plan, PRICES)
    assert question
    return read_rental(question, solve(question, SolveBudget(work=5))), plan


def with_rented(problem: Problem, found: Addition) -> Problem:
    nodes = {
        f"new-{kind}-{n}": Node(f"new-{kind}-{n}", kind, (0,), 16, 64, PRICES[kind])
        for kind, count in found.gpus.items()
        for n in range(count)
    }
    return replace(problem, nodes={**problem.nodes, **nodes})


@pytest.mark.slow
def test_the_cheapest_addition_serves_what_was_unserved() -> None:
    problem = fleet(service("shop/a", 900.0), spare={"big": 4, "old": 8})
    found, plan = rented(problem)
    assert plan.unserved
    assert found.serves == ("shop/a",)
    assert set(found.gpus) == {"old"}, "three old ones do what a big one does, for less"
    whole = solve(with_rented(problem, found), SolveBudget(work=5))
    assert whole.unserved == ()
    assert judge(with_rented(problem, found), whole, simulate=False, keeps=keep).is_right


@pytest.mark.slow
def test_a_type_that_cannot_keep_the_slo_is_not_rented() -> None:
    found, _ = rented(fleet(service("shop/a", 300.0, slo_ms=12.0), spare={"big": 4, "old": 8}))
    assert set(found.gpus) == {"big"}
    assert found.words == f"{found.gpus['big']} more big at {found.price_per_hour:g} an hour would serve shop/a"


@pytest.mark.slow
def test_what_renting_does_not_help_is_named() -> None:
    found, _ = rented(fleet(service("shop/a", 1500.0), service("lab/b", 5.0, slo_ms=1.0), spare={"big": 8}))
    assert (found.serves, found.leaves) == (("shop/a",), ("lab/b",))
    assert found.words.endswith("would serve shop/a; no GPU that could be rented helps lab/b")


@pytest.mark.slow
def test_what_could_be_rented_may_serve_a_part() -> None:
    found, _ = rented(fleet(service("shop/a", 3000.0), spare={"old": 1}))
    assert found.words == "1 more old at 0.5 an hour would serve a part of shop/a"


@pytest.mark.slow
def test_a_tenant_at_its_limit_is_not_helped_by_more_gpus() -> None:
    found, _ = rented(fleet(service("shop/a", 900.0), spare={"big": 8}, limits={"shop": Limit(gpus=1.0)}))
    assert found == Addition({}, 0, (), leaves=("shop/a",))
    assert found.words == ""


@pytest.mark.slow
def test_nothing_is_asked_where_nothing_is_unserved_or_could_be_rented() -> None:
    served = fleet(service("shop/a", 10.0), spare={"big": 4})
    assert pose_rental(served, solve(served, SolveBudget(work=1)), PRICES) is None
    short = fleet(service("shop/a", 900.0), spare={})
    assert pose_rental(short, solve(short, SolveBudget(work=1)), PRICES) is None


def test_nodes_empty_for_long_enough_are_releasable_the_dearest_first() -> None:
    nodes = [
        Node("n2", "old", (0, 1, 2, 3), 16, 64, 0.5),
        Node("n3", "big", (0, 1, 2, 3), 16, 64, 2.0),
        Node("n4", "big", (0, 1, 2, 3), 16, 64, 2.0, purchase="reserved"),
        Node("n5", "big", (0,), 16, 64, 2.0),
    ]
    problem = fleet(spare={})
    problem = replace(problem, nodes={**problem.nodes, **{node.name: node for node in nodes}})
    assert find_empty_nodes(problem, Plan(())) == ("n1", "n2", "n3", "n5"), (
        "a reserved node is paid whether used or not"
    )
    found = find_releasable(problem, {"n1": 0.0, "n2": 900.0, "n3": 900.0, "n5": 901.0}, 15.0)
    assert found == (Releasable("n3", 8.0), Releasable("n2", 2.0), Releasable("n5", 2.0))


def test_how_long_a_node_is_empty_is_remembered_until_something_runs_there(database_url: str) -> None:
    database = Database(database_url, pool_size=1, direct=True)
    noon = datetime(2026, 3, 2, 12, tzinfo=UTC)
    with database.engine.connect() as connection:

        def kept(minute: int, *nodes: str) -> dict[str, float]:
            moment = (noon + timedelta(minutes=minute)).isoformat()
            connection.execute(text("SELECT set_config('gpuwright.moment', :moment, false)"), {"moment": moment})
            return idle_nodes.keep(connection, nodes)

        assert kept(0, "n1", "n2") == {"n1": 0, "n2": 0}
        assert kept(10, "n1") == {"n1": 600}
        assert kept(20, "n1", "n2") == {"n1": 1200, "n2": 0}
    database.close()
