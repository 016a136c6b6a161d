"""Reclaims that were learned are priced where pools are chosen, and nowhere else: bills keep the price that is paid."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Connection, text

from app.access import Principal, Scope
from app.control.rent.question import (
    HAND_OVER_SECONDS,
    PoolOffer,
    RentalPool,
    _count_wanted,
    ask_renting,
    make_pool,
    pose_renting,
)
from app.control.rent.renter import add_reclaims
from app.control.rent.shown import describe_pools
from app.control.solve.inline import Inline
from app.manifests.model import Kind
from app.manifests.offline import DeclaredFiles
from app.store.database.database import Database
from app.store.fleet import rented
from app.world.notices import give_notice
from app.world.write import Actor
from simulation.world import read_documents, truth_of
from solvers.renting import ReclaimHistory
from tests.simulation.worlds import document, gpu_type, model, policy, profile, service

NOW = datetime.now(UTC).replace(microsecond=0)
START_SECONDS = 300.0
SPOT, FIRM = 0.30, 0.32
# Where a node's expected reclaims cost what it saves: SPOT x rate x (start + hand-over) = FIRM - SPOT.
EVEN_RATE = (FIRM - SPOT) / SPOT * 3600 / (START_SECONDS + HAND_OVER_SECONDS)
ORDER = """
    INSERT INTO rented_node (key, node, pool, hook, state, asked_at, since, start_seconds, minimum_seconds, joined_at,
        ended_at)
    VALUES (:node || :hours, :node, :pool, 'cloud', 'gone', :joined, :joined, 60, 600, :joined, :ended)
"""
NOTICE = """
    INSERT INTO event (at, last_at, reason, severity, kind, name, message, fingerprint)
    VALUES (:at, :at, :reason, 'warning', 'Node', :node, '', '')
"""


def world() -> DeclaredFiles:
    kind = gpu_type(price=FIRM)
    spot = kind | {"spec": kind["spec"] | {"prices": [{"purchase": "spot", "perHour": SPOT}]}}
    usual = {
        "gpuType": "v100-16gb", "gpusPerNode": 1, "cpuCores": 24, "memoryGib": 128, "max": 1, "hook": "cloud",
        "startSeconds": START_SECONDS,
    }  # fmt: skip
    pools = [document("Pool", name, usual | {"purchase": name}) for name in ("spot", "onDemand")]
    pools = [pool | {"metadata": {"name": pool["metadata"]["name"].lower()}} for pool in pools]
    return read_documents([spot, policy(), *pools, model("a"), profile("a"), service("a", 50.0)])


def declared_pools() -> dict[str, RentalPool]:
    files = world()
    (kind,) = files.of(Kind.GPU_TYPE)
    return {pool.name: make_pool(pool.name, pool.spec, kind.spec) for pool in files.of(Kind.POOL)}


def history_of(rate: float) -> ReclaimHistory:
    """Returns ten thousand node hours after which so many notices an hour are expected."""
    return ReclaimHistory(round(rate * 10_100 - 1), 10_000.0)


def chosen(rate: float) -> str:
    pools = declared_pools()
    pools["spot"] = replace(pools["spot"], reclaims=history_of(rate))
    offers = [PoolOffer(pool, coming=0, room=1) for pool in pools.values()]
    question, pool_of = pose_renting(truth_of(world()).problem, offers, {}, ())
    need = ask_renting(Inline(), question, pool_of, {})
    assert need is not None
    (name,) = need.wanted
    return name


@pytest.mark.slow
def test_the_choice_goes_to_a_firm_pool_where_reclaims_cost_what_spot_saves() -> None:
    assert chosen(0.01) == "spot"
    assert chosen(0.95 * EVEN_RATE) == "spot"
    assert chosen(1.05 * EVEN_RATE) == "ondemand"
    assert chosen(1.0) == "ondemand", "a node that is taken each hour is not worth a little less"


@pytest.mark.slow
def test_a_node_on_its_way_is_paid_already_so_that_no_other_is_ordered_for_what_it_saves() -> None:
    offers = [PoolOffer(declared_pools()["ondemand"], coming=1, room=1)]
    question, pool_of = pose_renting(truth_of(world()).problem, offers, {}, ())
    need = ask_renting(Inline(), question, pool_of, {})
    assert need is not None
    assert (dict(need.wanted), need.saving_per_hour) == ({}, 0.0)


def test_a_node_that_stands_there_is_not_ordered_again_under_another_name() -> None:
    """Both cost the same, and any plan may take either; what is missing is what is used beyond those that stand."""
    pool = declared_pools()["ondemand"]
    there = document("Node", "there", dict(pool.node_spec()))
    problem = truth_of(read_documents([*_documents(world()), there])).problem
    question, pool_of = pose_renting(problem, [PoolOffer(pool, coming=0, room=2)], {}, {"there"})
    (one, *_) = pool_of
    standing = {"there": pool.name}
    assert dict(_count_wanted(question, pool_of, standing, frozenset({one}))) == {}, "the other could have been used"
    assert dict(_count_wanted(question, pool_of, standing, frozenset({one, "there"}))) == {pool.name: 1}
    assert dict(_count_wanted(question, pool_of, {}, frozenset({one}))) == {pool.name: 1}, "it is of no pool"


@pytest.mark.parametrize(("notices", "hours"), [(0, 0.0), (3, 50.0), (40, 20.0)])
def test_the_rate_is_the_mean_of_the_posterior_by_plain_sums(notices: int, hours: float) -> None:
    """Weighs a fine grid of rates by the prior's density and the chance of so many notices in these hours."""
    grid = [step / 10_000 for step in range(1, 60_000)]
    weights = [rate**notices * 2.718281828459045 ** (-rate * (100 + hours)) for rate in grid]
    mean = sum(rate * weight for rate, weight in zip(grid, weights, strict=True)) / sum(weights)
    assert ReclaimHistory(notices, hours).per_hour == pytest.approx(mean, rel=2e-2)


def test_what_is_paid_knows_nothing_of_reclaims() -> None:
    spot = replace(declared_pools()["spot"], reclaims=history_of(1.0))
    assert spot.terms.price_per_hour == SPOT
    assert spot.candidate("n").price_per_hour == pytest.approx(SPOT + SPOT * 420 / 3600, rel=1e-3)
    files = read_documents([*_documents(world()), document("Node", "n", dict(spot.node_spec()))])
    assert truth_of(files).problem.nodes["n"].price_per_hour == SPOT
    firm = replace(declared_pools()["ondemand"], reclaims=history_of(1.0))
    assert firm.candidate("n").price_per_hour == FIRM, "no cloud takes it back"


def _documents(files: DeclaredFiles) -> list[dict[str, object]]:
    return [
        document(str(item.kind), item.name, dict(item.spec), item.tenant) for item in files.manifests.values()
    ]  # fmt: skip


def count(
    database: Database, orders: list[tuple[str, str, float, float | None]], events: list[tuple[str, float, str]]
) -> dict[str, tuple[int, float]]:
    """Stores orders (node, pool, joined so many hours ago, for so long; None: it stands) and events, and counts."""

    def write(connection: Connection) -> None:
        for node, pool, ago, hours in orders:
            joined = NOW - timedelta(hours=ago)
            values = {"node": node, "pool": pool, "hours": str(ago), "joined": joined}
            ended = None if hours is None else joined + timedelta(hours=hours)
            connection.execute(text(ORDER), values | {"ended": ended})
        for node, before, reason in events:
            values = {"node": node, "at": NOW - timedelta(hours=before), "reason": reason}
            connection.execute(text(NOTICE), values)

    database.write(write)
    return database.read(rented.count_reclaims)


def test_notices_are_counted_by_pool_and_hours_until_them(database: Database) -> None:
    """Two nodes of one pool, one noticed after three hours of five; a name used again; another pool; an old node."""
    orders: list[tuple[str, str, float, float | None]] = [
        ("e-1", "east", 10, 5), ("e-2", "east", 4, 2), ("e-1", "east", 3, 1), ("w-1", "west", 8, 8),
        ("o-1", "east", 24 * 20, 5),
    ]  # fmt: skip
    noticed = [("e-1", 7, "reclaim_notice"), ("e-1", 6.5, "reclaim_notice"), ("e-2", 3, "node_lost")]
    counted = count(database, orders, noticed)
    assert {pool: (notices, round(hours, 6)) for pool, (notices, hours) in counted.items()} == {
        "east": (1, 3 + 2 + 1),
        "west": (0, 8),
    }
    pools = add_reclaims({name: replace(declared_pools()["spot"], name=name) for name in ("east", "new")}, counted)
    shown = {key.name: status.fields["reclaims"] for key, status in describe_pools(pools, [], {}, {}).items()}
    assert shown["east"] == {"notices": 1, "nodeHours": 6, "ratePerHour": 0.0189, "costPerHour": 0.00066}
    assert shown["new"] == {"notices": 0, "nodeHours": 0, "ratePerHour": 0.01, "costPerHour": 0.00035}


def test_the_last_two_weeks_of_a_node_that_joined_before_them_count(database: Database) -> None:
    """One stands quietly, one got its notice yesterday, one ended five days ago, and one had its notice long ago."""
    days = {"quiet": (20, None), "noticed": (20, None), "ended": (20, 15), "long-ago": (30, 28)}
    orders = [(name, name, 24.0 * ago, None if kept is None else 24.0 * kept) for name, (ago, kept) in days.items()]
    counted = count(database, orders, [("noticed", 24, "reclaim_notice"), ("long-ago", 24 * 20, "reclaim_notice")])
    assert {pool: (notices, round(hours / 24)) for pool, (notices, hours) in counted.items()} == {
        "quiet": (0, 14),
        "noticed": (1, 13),
        "ended": (0, 9),
        "long-ago": (0, 0),
    }


def test_a_notice_of_a_node_that_is_being_given_back_does_not_count(database: Database) -> None:
    """Its own hook may cause it."""
    orders: list[tuple[str, str, float, float | None]] = [("given", "given", 10, None), ("taken", "taken", 10, None)]
    count(database, orders, [])
    operator = Actor(Principal("operator", Scope.OPERATOR), "request")

    def give(connection: Connection) -> None:
        connection.execute(text("UPDATE rented_node SET state = 'leaving' WHERE node = 'given'"))
        for node in ("given", "taken"):
            give_notice(connection, operator, node, "node", NOW + timedelta(minutes=10))

    database.write(give)
    ended = text("UPDATE rented_node SET state = 'gone', ended_at = moment()")
    database.write(lambda connection: connection.execute(ended).close())
    counted = database.read(rented.count_reclaims)
    assert {pool: notices for pool, (notices, _) in counted.items()} == {"given": 0, "taken": 1}


def test_a_notice_that_was_withdrawn_does_not_count(database: Database) -> None:
    """Its node goes on counting hours; one that gets another notice afterwards counts until that."""
    events = [
        ("still", 8, "reclaim_notice"), ("still", 7, "reclaim_withdrawn"),
        ("again", 8, "reclaim_notice"), ("again", 7, "reclaim_withdrawn"), ("again", 4, "reclaim_notice"),
        ("later", 8, "reclaim_notice"), ("later", 1, "reclaim_withdrawn"),
    ]  # fmt: skip
    orders: list[tuple[str, str, float, float | None]] = [
        ("still", "still", 10, 9), ("again", "again", 10, 9), ("later", "later", 10, 5)
    ]  # fmt: skip
    counted = count(database, orders, [(node, ago, reason) for node, ago, reason in events])
    assert {pool: (notices, round(hours, 3)) for pool, (notices, hours) in counted.items()} == {
        "still": (0, 9),
        "again": (1, 6),
        "later": (1, 2),
    }, "what comes under a name after the order's end is not its own"
