"""What is planned and does not run after its rollout is planned elsewhere, or counted as unserved and told."""

from __future__ import annotations

import pytest

from app.control.domain.specs import DOWN_SECONDS
from app.manifests.model import Key, Kind
from app.store.plans import approval_hold, plan_reads
from simulation.run import Simulation
from tests.app.control.test_failed_places import (
    BIG,
    QUICK_SECONDS,
    Place,
    assigned_places,
    failures,
    others,
    rows,
    settled,
    small_service,
    until_served,
)
from tests.simulation.worlds import node, withdraw

pytestmark = pytest.mark.slow

REPORT_SECONDS = 10.0
MOVES_WITHIN_SECONDS = DOWN_SECONDS + REPORT_SECONDS + 10.0


def break_place(simulation: Simulation, name: str) -> Place:
    """Kills the copy of a service, and makes every further start on its GPU fail."""
    (place,) = assigned_places(simulation, name)
    broken = simulation.fleet.nodes[place[0]]
    broken.failing_gpus.add(place[1])
    for copy in broken.alive():
        if copy.service == f"shop/{name}":
            broken.kill(copy.id)
    return place


def until_moved(simulation: Simulation, name: str, place: Place) -> None:
    for _ in simulation.seconds(MOVES_WITHIN_SECONDS):
        if (places := assigned_places(simulation, name)) and place not in places:
            return
    raise AssertionError(f"{name} is still planned on {place}")


def told(simulation: Simulation, reason: str) -> list[str]:
    return [row.message for row in rows(simulation, f"SELECT message FROM event WHERE reason = '{reason}' ORDER BY id")]


def test_a_copy_that_cannot_run_any_more_after_its_rollout_is_served_from_elsewhere_and_nothing_else_moves(
    database_url: str,
) -> None:
    fleet = [node("node-0"), node("node-1"), *(each for name in "abcd" for each in small_service(name))]
    with settled(database_url, *fleet) as simulation:
        name = next(each for each in "abcd" if len(assigned_places(simulation, each)) == 1)
        before = others(simulation, name)
        place = break_place(simulation, name)
        until_moved(simulation, name, place)
        assert failures(simulation)[f"shop/{name}"].places == (place,)
        (message,) = told(simulation, "instance_down")
        assert f"on {place[0]}/{place[1]} has been down for" in message
        assert rows(simulation, "SELECT lane, reason FROM plan ORDER BY generation DESC LIMIT 1") == [
            ("fast", "instance_down")
        ]
        for _ in until_served(simulation, name, 2 * QUICK_SECONDS):
            assert others(simulation, name) == before
        assert told(simulation, "many_down") == []


def test_after_a_rollback_a_copy_that_is_down_stays_until_a_person_resumes_the_fleet(database_url: str) -> None:
    fleet = [node("node-0"), node("node-1"), *(each for name in "abc" for each in small_service(name))]
    with settled(database_url, *fleet) as simulation:
        withdraw(simulation.database, Key(Kind.SERVICE, "shop", "c"))
        simulation.advance(30)
        unwanted = simulation.database.read(plan_reads.read_generation_in_force)
        simulation.database.write(lambda c: plan_reads.store_request(c, unwanted, "rollback", "a person"))
        simulation.advance(35)
        assert told(simulation, "rolled_back")
        place = break_place(simulation, "a")
        simulation.advance(2 * MOVES_WITHIN_SECONDS)
        assert assigned_places(simulation, "a") == {place}
        (message,) = told(simulation, "instance_down")
        assert message.endswith("as the fleet is held since a rollback: gpuwright plan resume --fleet")
        simulation.database.write(approval_hold.lift)
        until_moved(simulation, "a", place)


def test_what_no_other_gpu_can_take_counts_as_unserved_and_starts_there_again(database_url: str) -> None:
    fleet = [node("node-0"), node("big-0", 1, BIG), *small_service("d", BIG)]
    fleet += [each for name in "abc" for each in small_service(name)]
    with settled(database_url, *fleet) as simulation:
        place = break_place(simulation, "d")
        for _ in simulation.seconds(MOVES_WITHIN_SECONDS):
            if not assigned_places(simulation, "d"):
                break
        simulation.advance(5)
        (row,) = rows(
            simulation, "SELECT status -> 'conditions' AS conditions FROM object WHERE name = 'd' AND kind = 'Service'"
        )
        planned = next(each for each in row.conditions if each["type"] == "Planned")
        assert planned["status"] == "False"
        assert "100 are unserved" in planned["message"]
        simulation.fleet.nodes[place[0]].failing_gpus.clear()
        for _ in until_served(simulation, "d", 120):
            pass
        assert assigned_places(simulation, "d") == {place}
