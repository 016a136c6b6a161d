"""What may be rented, what it costs, and the fleet that has it."""

from __future__ import annotations

import pytest

from app.manifests.model import Kind
from simulation.sizing.rental import Rental, RentalMarket, RentalRefused
from simulation.world import read_documents
from tests.simulation.sizing.worlds import documents, rentable, world
from tests.simulation.worlds import document, gpu_type, node, service


def test_a_rental_has_only_types_with_gpus_and_names_them() -> None:
    rental = Rental.of({"small": 2, "big": 0})
    assert rental.by_type == {"small": 2}
    assert rental.changed("small", -2) == Rental()
    assert str(rental.changed("big", 1)) == "1 big and 2 small"
    assert str(Rental()) == "nothing"


def test_a_rental_costs_what_on_demand_costs_in_the_default_region() -> None:
    prices = [{"perHour": 0.7}, {"region": "eu", "perHour": 0.1}, {"purchase": "spot", "perHour": 0.2}]
    priced = rentable(gpu_type("small", 1.0), 5, prices=prices)
    market = RentalMarket.of(read_documents([priced, *documents()[1:]]))
    assert market.price(Rental.of({"small": 2, "big": 1})) == pytest.approx(2 * 0.7 + 2.5)
    assert market.dearest_first(Rental.of({"small": 2, "big": 1})) == ["big", "small"]


def test_the_fleet_has_its_own_nodes_the_rented_ones_and_no_job_or_state() -> None:
    speed = {"small": {"stepsPerSecond": {"100": 1.0}, "memoryGib": 1}}
    job = document("Job", "learn", {"type": "training", "steps": 10, "profiles": speed}, "shop")
    state = document("State", "now", {"running": []})
    fleet = RentalMarket.of(read_documents([*documents(owned=2), job, state])).fleet(
        Rental.of({"small": 1, "big": 2}), {"shop/a": 40.0}
    )
    assert sorted(manifest.name for manifest in fleet.of(Kind.NODE)) == [
        "own-0", "own-1", "rent-big-1", "rent-big-2", "rent-small-1",
    ]  # fmt: skip
    assert not fleet.of(Kind.JOB)
    assert not fleet.of(Kind.STATE)
    assert {manifest.name: manifest.spec["ratePerSecond"] for manifest in fleet.of(Kind.SERVICE)} == {"a": 40, "b": 7}
    assert all(manifest.spec["rentable"] == 0 for manifest in fleet.of(Kind.GPU_TYPE))


def test_a_rented_gpu_has_its_part_of_the_host_of_the_cheapest_declared_node() -> None:
    market = RentalMarket.of(read_documents([*documents(), node("mine", 4, "big")]))
    (rented,) = market.nodes(Rental.of({"big": 1}))
    assert (rented.spec["cpuCores"], rented.spec["memoryGib"]) == (12, 64)


def test_where_nothing_is_rentable_the_refusal_names_the_field() -> None:
    with pytest.raises(RentalRefused, match=r"give at least one GpuType spec\.rentable.*declared: big, small"):
        RentalMarket.of(world(small=0, big=0))


def test_a_declared_node_may_not_have_the_name_of_a_rented_one() -> None:
    with pytest.raises(RentalRefused, match="Node rent-big-1 has a name that is kept for rented GPUs"):
        RentalMarket.of(read_documents([*documents(), node("rent-big-1", 1, "big")]))


def test_only_types_with_a_profile_that_the_service_admits_are_usable_by_it() -> None:
    market = RentalMarket.of(
        read_documents([*documents(), rentable(gpu_type("odd"), 1), service("c", 3.0, of="a", gpuTypes=["big"])])
    )
    assert market.usable_by(["shop/a"]) == ["big", "small"]
    assert market.usable_by(["shop/c"]) == ["big"]
