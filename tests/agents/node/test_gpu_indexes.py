"""An index always means the device it was first given to, even when devices fall off the bus or are added."""

from __future__ import annotations

from agents.contract.assignments import AssignedGpu
from agents.node.gpu_indexes import assigned_indexes, extend_indexes
from agents.seams.device import GpuDevice
from tests.support.nodes import assigned


def gpu(uuid: str, pci: str, index: int = 0) -> GpuDevice:
    return GpuDevice(index, uuid, "V100", pci, 16, 80, (), 0, 0, 0, frozenset())


def test_devices_are_numbered_by_their_addresses_at_the_first_look() -> None:
    found = [gpu("c", "03"), gpu("a", "01"), gpu("b", "02")]
    assert extend_indexes({}, found) == {0: "a", 1: "b", 2: "c"}


def test_a_lost_device_keeps_its_index_and_moves_no_other() -> None:
    known = extend_indexes({}, [gpu("a", "01"), gpu("b", "02"), gpu("c", "03")])
    assert extend_indexes(known, [gpu("b", "02", 0), gpu("c", "03", 1)]) == known


def test_a_device_put_in_later_follows_those_known_though_its_address_is_lower() -> None:
    assert extend_indexes({0: "b"}, [gpu("a", "01"), gpu("b", "02")]) == {0: "b", 1: "a"}


def test_a_device_in_the_place_of_another_has_its_own_index() -> None:
    assert extend_indexes({0: "a", 1: "b"}, [gpu("new", "01"), gpu("b", "02")]) == {0: "a", 1: "b", 2: "new"}


def test_an_index_that_was_left_out_is_given_first() -> None:
    assert extend_indexes({1: "b"}, [gpu("a", "01"), gpu("b", "02")]) == {0: "a", 1: "b"}


def test_the_same_device_enumerated_twice_has_a_single_index() -> None:
    assert extend_indexes({}, [gpu("a", "01"), gpu("a", "01")]) == {0: "a"}


def test_what_an_assignment_names_by_uuid_counts() -> None:
    offered = assigned(1, gpus=[AssignedGpu(0, uuid="b"), AssignedGpu(1, uuid="a")])
    assert assigned_indexes({0: "a", 1: "b"}, offered) == {0: "b", 1: "a"}


def test_an_assignment_without_uuids_means_what_the_node_knows() -> None:
    assert assigned_indexes({0: "a"}, assigned(1, gpus=[AssignedGpu(0)])) == {0: "a"}
    assert assigned_indexes({0: "a"}, None) == {0: "a"}
