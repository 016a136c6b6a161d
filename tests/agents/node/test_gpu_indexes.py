"""An index means a place on the PCI bus, whatever board is in it; what cannot be told is not guessed."""

from __future__ import annotations

import pytest

from agents.node.gpu_indexes import IndexedGpu, SettledIndexes, settle_indexes
from agents.seams.device import GpuDevice


def gpu(uuid: str, pci: str, serial: str = "", mig: str = "") -> GpuDevice:
    return GpuDevice(0, uuid, "V100", pci, 16, 80, (), 0, 0, 0, frozenset(), mig=mig, serial=serial)


def settled(*found: GpuDevice, known: dict[int, IndexedGpu] | None = None, busy: str = "") -> SettledIndexes:
    held = {index: uuid for index, uuid in enumerate("abc") if uuid in busy}
    return settle_indexes(THREE if known is None else known, found, held)


def uuids(result: SettledIndexes) -> dict[int, str]:
    return {index: gpu.uuid for index, gpu in result.gpus.items()}


FOUND = (gpu("a", "01", "s-a"), gpu("b", "02", "s-b"), gpu("c", "03", "s-c"))
THREE = dict(settle_indexes({}, FOUND, {}).gpus)


def test_devices_are_numbered_by_their_addresses_at_the_first_look() -> None:
    found = [gpu("c", "03"), gpu("a", "01"), gpu("b", "02")]
    assert uuids(settle_indexes({}, found, {})) == {0: "a", 1: "b", 2: "c"}


def test_a_node_that_lost_its_record_numbers_its_devices_as_its_copies_have_them_while_they_are_there() -> None:
    found = [gpu("b", "02"), gpu("c", "03"), gpu("d", "04")]
    assert uuids(settle_indexes({}, found, {0: "a", 1: "b"})) == {0: "c", 1: "b", 2: "d"}


def test_a_lost_device_keeps_its_index_and_moves_no_other() -> None:
    assert settled(FOUND[1], FOUND[2]).gpus == THREE


@pytest.mark.parametrize(
    ("found", "indexes"),
    [
        ([gpu("x", "01"), gpu("y", "02"), gpu("z", "03")], {0: "x", 1: "y", 2: "z"}),  # stopped and started
        ([gpu("b", "01"), gpu("c", "02"), gpu("a", "03")], {0: "b", 1: "c", 2: "a"}),  # permuted
        ([gpu("a", "01"), gpu("x", "02"), gpu("c", "03")], {0: "a", 1: "x", 2: "c"}),  # one replaced
        ([gpu("a", "41"), gpu("b", "42"), gpu("c", "43")], {0: "a", 1: "b", 2: "c"}),  # the bus renumbered
        ([gpu("a", "41"), gpu("x", "43", "s-b"), gpu("c", "42")], {0: "a", 1: "x", 2: "c"}),  # and a board renamed
        ([gpu("a", "01"), gpu("c", "03"), gpu("x", "04")], {0: "a", 1: "x", 2: "c"}),  # replaced in another slot
        ([gpu("x", "51"), gpu("y", "52")], {0: "x", 1: "y"}),  # another machine
        ([*FOUND, gpu("x", "00")], {0: "a", 1: "b", 2: "c", 3: "x"}),  # one put in
    ],
)
def test_an_index_follows_its_place_then_its_device_then_its_board(
    found: list[GpuDevice], indexes: dict[int, str]
) -> None:
    result = settled(*found)
    assert (uuids(result), result.message) == (indexes, "")


def test_two_that_are_gone_and_two_that_are_new_are_not_guessed_and_named() -> None:
    result = settled(FOUND[0], gpu("x", "08"), gpu("y", "09"))
    assert result.gpus == THREE
    assert result.message == (
        "GPU 1 (b at 02), GPU 2 (c at 03) are gone and x at 08, y at 09 are new, each at another place; which is which "
        "cannot be told, so the new ones are not used: join the node again to number its GPUs again"
    )


def test_nothing_changes_its_index_while_something_runs_on_it() -> None:
    permuted = [gpu("b", "01"), gpu("c", "02"), gpu("a", "03")]
    result = settled(*permuted, busy="c")
    assert (result.gpus, result.waits) == (THREE, True)
    assert result.message == "other GPUs are taken over once nothing runs on c"
    assert uuids(settled(*permuted, busy="d")) == {0: "b", 1: "c", 2: "a"}


def test_a_device_that_only_moved_may_be_busy() -> None:
    found = [gpu("a", "41"), gpu("b", "42"), gpu("c", "43")]
    assert settled(*found, busy="a b c").gpus[2] == IndexedGpu("c", "43", "")


def test_mig_devices_of_one_address_are_told_by_their_instance() -> None:
    parts = [gpu("m1", "01", "s", mig="1.0"), gpu("m2", "01", "s", mig="2.0")]
    known = dict(settle_indexes({}, parts, {}).gpus)
    after = [gpu("n2", "01", "s", mig="2.0"), gpu("n1", "01", "s", mig="1.0")]
    assert uuids(settled(*after, known=known)) == {0: "n1", 1: "n2"}


def test_devices_without_an_address_are_told_by_their_uuids() -> None:
    known = dict(settle_indexes({}, [gpu("a", ""), gpu("b", "")], {}).gpus)
    assert uuids(settled(gpu("b", ""), known=known)) == {0: "a", 1: "b"}
    assert uuids(settled(gpu("x", ""), gpu("b", ""), known=known)) == {0: "x", 1: "b"}


def test_an_index_that_was_left_out_is_given_first() -> None:
    assert uuids(settled(gpu("a", "01"), gpu("b", "02"), known={1: IndexedGpu("b", "02")})) == {0: "a", 1: "b"}


def test_the_same_device_enumerated_twice_has_a_single_index() -> None:
    assert uuids(settle_indexes({}, [gpu("a", "01"), gpu("a", "01")], {})) == {0: "a"}
