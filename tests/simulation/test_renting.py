"""A fleet with a pool in virtual time: nodes are rented before they are needed, given back after, and never lost."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import text

from app.control.domain.leading import Deposed
from app.control.observe.listener import ReportListener
from app.control.planner import Planner
from app.control.record.planner_store import PlannerStore
from app.control.rent.calls import HookOrder
from app.control.rent.posted import PostedHook
from app.control.rent.states import HookAnswer
from app.manifests.model import Key, Kind
from app.store.database import clock
from app.store.database.database import Database
from app.store.fleet import rent_accounts
from app.store.world import objects
from app.world.declare import delete
from simulation.run import LEASE_SECONDS, Simulation, open_simulation
from simulation.world import ACTOR, put, read_documents
from tests.simulation.worlds import Document, document, gpu_type, model, node, policy, profile, service
from tests.webhooks.receiver import running_receiver

pytestmark = pytest.mark.slow
TICK_SECONDS = 5.0


def pool(**spec: Any) -> Document:
    usual = {
        "gpuType": "v100-16gb", "gpusPerNode": 1, "cpuCores": 24, "memoryGib": 128, "max": 3, "startSeconds": 120,
        "minimumMinutes": 10, "hook": "cloud",
    }  # fmt: skip
    return document("Pool", "burst", usual | spec)


@contextmanager
def fleet(url: str, rate: float = 450.0, mode: str = "auto", **spec: Any) -> Iterator[Simulation]:
    """One GPU that stands there and a pool; the service's rate needs more than one GPU, its load is what tests say."""
    world = read_documents(
        [
            gpu_type(),
            policy(mode=mode),
            node("base", gpus=1),
            pool(**spec),
            model("a"),
            profile("a"),
            service("a", rate),
        ]
    )
    with open_simulation(url, world) as made:
        yield made


def rows(simulation: Simulation, sql: str) -> list[Any]:
    return simulation.database.read(lambda connection: list(connection.execute(text(sql))))


def states(simulation: Simulation) -> list[str]:
    return [state for (state,) in rows(simulation, "SELECT state FROM rented_node ORDER BY asked_at, node")]


def events(simulation: Simulation) -> list[str]:
    return [reason for (reason,) in rows(simulation, "SELECT reason FROM event WHERE kind = 'Pool' ORDER BY id")]


def condition(simulation: Simulation) -> tuple[str, str]:
    stored = simulation.database.read(lambda connection: objects.get(connection, Key(Kind.POOL, "", "burst")))
    assert stored is not None
    return next((c["status"], c["message"]) for c in stored.conditions if c["type"] == "Renting")


class BentCloud:
    """Bends what a simulated cloud answers; its machines stay its own."""

    def __init__(self, simulation: Simulation, **answers: HookAnswer) -> None:
        self.cloud, self.answers, self.orders = simulation.cloud, answers, list[HookOrder]()
        simulation.planner.hooks = simulation.planner._renter.hooks = self

    def call(self, order: HookOrder) -> HookAnswer:
        self.orders.append(order)
        return self.answers[order.verb] if order.verb in self.answers else self.cloud.call(order)


def test_a_node_is_rented_for_load_that_is_not_served_and_given_back_when_it_ends(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(130, TICK_SECONDS)
        assert states(simulation) == ["starting"]
        assert rows(simulation, "SELECT name, spec ->> 'pool' FROM object WHERE kind = 'Node' AND name <> 'base'") == [
            ("burst-1", "burst")
        ]
        simulation.advance(200, TICK_SECONDS)
        assert states(simulation) == ["joined"]
        assert simulation.fleet.nodes["burst-1"].serving(), "it serves what the other GPU could not"
        assert condition(simulation)[0] == "True"
        simulation.fleet.shapes["shop/a"] = lambda seconds: 0.2
        simulation.advance(5400, TICK_SECONDS)
        assert states(simulation) == ["gone"]
        assert simulation.fleet.nodes.keys() == {"base"}
        assert rows(simulation, "SELECT name FROM object WHERE kind = 'Node'") == [("base",)]
        assert rows(simulation, "SELECT node FROM cordon") == [], "a node of its name may be rented again"
        assert events(simulation) == ["rent_ordered", "rent_joined", "rent_leaving", "rent_returned"]
        (seen,) = rows(simulation, "SELECT orders, returned, rented_hours, wasted_minutes FROM report.rented")
        assert seen[:2] == (1, 1)
        paid = sum(machine.paid_seconds(0, 1e9) for machine in simulation.cloud.machines.values())
        assert float(seen.rented_hours) == pytest.approx(paid / 3600, abs=0.03)
        assert 0 < float(seen.wasted_minutes) < 60 * float(seen.rented_hours)


def test_a_node_whose_load_fits_on_what_is_paid_anyway_is_given_back(database_url: str) -> None:
    with fleet(database_url, rate=450.0, minimumMinutes=5) as simulation:
        simulation.advance(400, TICK_SECONDS)
        assert states(simulation) == ["joined"]
        assert simulation.fleet.nodes["burst-1"].serving(), "the load needs both"
        simulation.fleet.shapes["shop/a"] = lambda seconds: 0.5
        simulation.advance(3000, TICK_SECONDS)
        assert set(states(simulation)) == {"gone"}, "half of the load fits on the node of no pool, whatever ran where"


def test_a_node_is_never_ordered_under_the_name_of_one_that_has_just_ended(database_url: str) -> None:
    with fleet(database_url) as simulation:
        bent = BentCloud(simulation, rent=HookAnswer("refused", "no capacity in this zone"))
        simulation.advance(1500, TICK_SECONDS)
        assert [order.node for order in bent.orders] == ["burst-1", "burst-2", "burst-3"]


def test_the_least_number_of_a_pool_is_rented_whatever_is_needed(database_url: str) -> None:
    with fleet(database_url, rate=50.0, min=2) as simulation:
        simulation.advance(3600, TICK_SECONDS)
        assert states(simulation) == ["joined", "joined"]
        assert (
            condition(simulation)[1]
            == "the load needs 2 less for 60 s: they go as their terms end, unless its min keeps them"
        )


def test_nothing_is_rented_before_the_mode_allows_it(database_url: str) -> None:
    with fleet(database_url, mode="advisory") as simulation:
        simulation.advance(300, TICK_SECONDS)
        assert states(simulation) == []
        assert condition(simulation) == ("True", "nothing is rented outside mode auto")


def test_a_refusal_rests_the_pool_and_is_named_in_its_condition(database_url: str) -> None:
    with fleet(database_url) as simulation:
        bent = BentCloud(simulation, rent=HookAnswer("refused", "no capacity in this zone"))
        simulation.advance(300, TICK_SECONDS)
        assert len(bent.orders) == 1
        assert condition(simulation) == ("False", "node burst-1: no capacity in this zone")
        bent.answers.clear()
        simulation.advance(900, TICK_SECONDS)
        assert states(simulation)[-1] == "joined"


def test_a_node_that_is_said_to_be_gone_and_still_reports_is_named_until_it_is_gone(database_url: str) -> None:
    with fleet(database_url) as simulation:
        bent = BentCloud(simulation)
        simulation.advance(300, TICK_SECONDS)
        simulation.fleet.shapes["shop/a"] = lambda seconds: 0.2
        bent.answers["return"] = HookAnswer("returned")
        simulation.advance(5400, TICK_SECONDS)
        assert states(simulation) == ["leaving"]
        status, message = condition(simulation)
        assert status == "False"
        assert "still reports: it may be paid for" in message
        keys = {order.key for order in bent.orders}
        assert len(keys) == 1, "it is called again under the same key"
        bent.answers.clear()
        simulation.advance(600, TICK_SECONDS)
        assert states(simulation) == ["gone"]


def test_an_order_that_is_accepted_twice_rents_one_machine_and_a_lost_answer_loses_none(database_url: str) -> None:
    with fleet(database_url) as simulation:
        lost: list[HookOrder] = []

        class Forgetful:
            def call(self, order: HookOrder) -> HookAnswer:
                answer = simulation.cloud.call(order)
                lost.append(order)
                return HookAnswer("failed", "the answer was lost") if len(lost) < 3 else answer

        simulation.planner.hooks = Forgetful()
        simulation.advance(400, TICK_SECONDS)
        assert len({order.key for order in lost}) == 1
        assert len(simulation.cloud.machines) == 1
        assert states(simulation) == ["joined"]


def test_a_server_that_rents_and_answers_badly_is_asked_again_under_one_key_until_it_answers(
    database_url: str,
) -> None:
    with fleet(database_url, startSeconds=240) as simulation, running_receiver() as receiver:
        posted = PostedHook(receiver.address, b"a secret of hooks", 0.3, "", on_this_machine=True)
        faults = ["hang", "500", "flood", "redirect", "close", "drip"]

        class Posting:
            def call(self, order: HookOrder) -> HookAnswer:
                answer = simulation.cloud.call(order)
                receiver.says = faults.pop(0) if faults else "200"
                receiver.answer = json.dumps({"state": answer.state}).encode()
                return posted.call(order)

        simulation.planner.hooks = Posting()
        simulation.advance(600, TICK_SECONDS)
        assert not faults
        assert states(simulation) == ["joined"]
        assert len(simulation.cloud.machines) == 1
        posts = [receiver.posts.get_nowait() for _ in range(receiver.posts.qsize())]
        assert {post.headers["idempotency-key"] for post in posts} == set(simulation.cloud.machines)


def test_another_node_is_ordered_for_one_that_is_late(database_url: str) -> None:
    with fleet(database_url) as simulation:
        bent = BentCloud(simulation, rent=HookAnswer("accepted"))
        simulation.advance(400, TICK_SECONDS)
        assert states(simulation) == ["starting"], "its hook has rented nothing"
        bent.answers.clear()
        simulation.advance(300, TICK_SECONDS)
        assert sorted(states(simulation)) == ["joined", "late"]
        simulation.advance(400, TICK_SECONDS)
        assert sorted(states(simulation)) == ["joined", "leaving"]


def test_a_planner_whose_time_is_over_orders_nothing(database_url: str) -> None:
    with fleet(database_url) as simulation:
        simulation.advance(20, TICK_SECONDS)
        simulation.database.write(lambda connection: connection.execute(text("UPDATE lease SET epoch = epoch + 1")))
        renter, store = simulation.planner._renter, simulation.planner.store
        before = rows(simulation, "SELECT key, state, called_at FROM rented_node")
        with pytest.raises(Deposed):
            renter.carry_out(store.epoch, store.world, store.silence)
            raise Deposed("nothing was due")
        assert rows(simulation, "SELECT key, state, called_at FROM rented_node") == before


def test_no_more_is_rented_once_a_person_stops_it(database_url: str) -> None:
    with fleet(database_url) as simulation:
        bent = BentCloud(simulation, rent=HookAnswer("failed", "it timed out"))
        simulation.advance(130, TICK_SECONDS)
        assert states(simulation) == ["asked"]
        called = len(bent.orders)
        put(simulation.database, read_documents([policy(mode="advisory")]))
        simulation.advance(900, TICK_SECONDS)
        assert [order.verb for order in bent.orders[called:]] == ["return"], "its hook may have rented it"
        assert states(simulation) == ["gone"]


def test_a_machine_that_joins_before_its_hook_has_answered_is_one_of_its_pool(database_url: str) -> None:
    with fleet(database_url) as simulation:

        class Slow:
            def call(self, order: HookOrder) -> HookAnswer:
                simulation.cloud.call(order)
                return HookAnswer("failed", "it timed out")

        simulation.planner.hooks = simulation.planner._renter.hooks = Slow()
        simulation.advance(400, TICK_SECONDS)
        assert states(simulation) == ["joined"]
        assert rows(simulation, "SELECT spec ->> 'pool' FROM object WHERE name = 'burst-1'") == [("burst",)]


def test_while_no_node_reports_none_is_late_or_gone(database_url: str) -> None:
    with fleet(database_url) as simulation:
        bent = BentCloud(simulation)
        simulation.advance(300, TICK_SECONDS)
        simulation.fleet.shapes["shop/a"] = lambda seconds: 0.2
        bent.answers["return"] = HookAnswer("returned")
        while bent.orders[-1].verb != "return":
            simulation.advance(TICK_SECONDS, TICK_SECONDS)
        simulation.post.silence(["base", "burst-1"])
        simulation.advance(900, TICK_SECONDS)
        assert states(simulation) == ["leaving"]
        simulation.post.silence(["base"], "as usual")
        simulation.advance(60, TICK_SECONDS)
        assert states(simulation) == ["gone"]


@pytest.mark.parametrize("how", ["silent", "deleted"])
def test_a_node_that_dies_or_that_a_person_deletes_is_given_back_and_another_comes(database_url: str, how: str) -> None:
    with fleet(database_url, rate=50.0, min=1, max=1) as simulation:
        simulation.advance(300, TICK_SECONDS)
        assert states(simulation) == ["joined"]
        if how == "silent":
            simulation.post.silence(["burst-1"])
        else:
            key = Key(Kind.NODE, "", "burst-1")
            simulation.database.write(lambda connection: delete(connection, ACTOR, key, force=True))
        simulation.advance(1500, TICK_SECONDS)
        assert states(simulation) == ["gone", "joined"]
        assert "rent_lost" in events(simulation)
        assert "rent_cancelled" not in events(simulation), "the lost one counts until it is given back"


def replace_leader(simulation: Simulation, holder: str) -> None:
    """As if the leader was killed: another leads once its lease is over, and knows what is in the database."""
    old = simulation.planner
    simulation.planner = Planner(
        PlannerStore(simulation.database, holder, LEASE_SECONDS), old.solver, ReportListener(simulation.database),
        budget=old.budget, hooks=simulation.cloud,
    )  # fmt: skip


def test_a_fleet_whose_leader_is_killed_before_it_orders_rents_what_saves(database_url: str) -> None:
    """A node would save less than it costs: ordered once waiting has cost a start and a term, after 25 minutes."""
    world = [gpu_type(), policy(unservedPrice=0.012), node("base", gpus=1), pool(minimumMinutes=20), model("a")]
    with open_simulation(database_url, read_documents([*world, profile("a"), service("a", 450.0)])) as simulation:
        simulation.advance(1500, 20.0)
        assert states(simulation) == [], "waiting has not cost enough"
        replace_leader(simulation, "second")
        simulation.advance(1500, 20.0)
        assert len(states(simulation)) == 1, condition(simulation)
        assert simulation.planner.store.epoch == 2
        ((asked,),) = rows(simulation, "SELECT extract(epoch FROM moment() - asked_at) FROM rented_node")
        assert 0 < float(asked) < 1200


def test_an_account_of_long_ago_is_not_continued(database: Database) -> None:
    database.write(lambda connection: rent_accounts.put(connection, {"burst": 0.75}))
    now = database.read(clock.moment)
    assert database.read(lambda known: rent_accounts.get(known, now - timedelta(minutes=1))) == {"burst": 0.75}
    assert database.read(lambda known: rent_accounts.get(known, now + timedelta(minutes=1))) == {}
