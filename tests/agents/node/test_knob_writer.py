"""Knobs are set only where they were requested and differ, and retried after a while."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents.node.knob_writer import RENEW_SECONDS, RETRY_SECONDS, KnobWriter
from agents.seams.device import Ability
from tests.support.nodes import served
from tests.support.virtual import VirtualNode, virtual


@pytest.fixture
def made(tmp_path: Path) -> Iterator[VirtualNode]:
    with virtual(tmp_path) as node:
        yield node


@pytest.fixture
def knobs(made: VirtualNode) -> KnobWriter:
    return KnobWriter(made.node._around.drivers)


def test_a_clock_is_set_once_and_again_only_after_a_minute(made: VirtualNode, knobs: KnobWriter) -> None:
    (uuid,) = made.uuids
    for second in range(int(RENEW_SECONDS)):
        knobs.set_clock(uuid, 1380, float(second))
    assert made.machine.writes == 1
    assert knobs.clocks[uuid].applied == 1380
    knobs.set_clock(uuid, 1380, RENEW_SECONDS)
    assert made.machine.writes == 2


def test_a_clock_that_was_reset_from_outside_is_set_again(made: VirtualNode, knobs: KnobWriter) -> None:
    (uuid,) = made.uuids
    knobs.set_clock(uuid, 1380, 0.0)
    made.machine.reload_driver()
    knobs.set_clock(uuid, 1380, RENEW_SECONDS)
    assert made.machine.truth(uuid).settings.locked_mhz == 1380


def test_a_knob_that_was_not_requested_is_never_turned(made: VirtualNode, knobs: KnobWriter) -> None:
    (uuid,) = made.uuids
    knobs.set_clock(uuid, None, 0.0)
    knobs.set_cap(uuid, None, 0.0)
    assert made.machine.writes == 0


def test_a_clock_and_a_cap_that_are_not_wanted_any_more_are_given_back_once(
    made: VirtualNode, knobs: KnobWriter
) -> None:
    (uuid,) = made.uuids
    knobs.set_clock(uuid, 1380, 0.0)
    knobs.set_cap(uuid, 200.0, 0.0)
    for second in range(1, 200):
        knobs.set_clock(uuid, None, float(second))
        knobs.set_cap(uuid, None, float(second))
    settings = made.machine.truth(uuid).settings
    assert (settings.locked_mhz, settings.cap_w) == (None, 300)
    assert made.machine.writes == 4


def test_what_does_not_turn_is_tried_again_after_ten_seconds(made: VirtualNode, knobs: KnobWriter) -> None:
    (uuid,) = made.uuids
    made.machine.setters(uuid, "ignored")
    knobs.set_clock(uuid, 1380, 0.0)
    assert (knobs.clocks[uuid].applied, knobs.clocks[uuid].trouble) == (None, "not_applied")
    made.machine.setters(uuid, "work")
    knobs.set_clock(uuid, 1380, RETRY_SECONDS - 0.1)
    assert made.machine.writes == 1
    knobs.set_clock(uuid, 1380, RETRY_SECONDS)
    assert (knobs.clocks[uuid].applied, knobs.clocks[uuid].trouble) == (1380, "")


@pytest.mark.parametrize("how", ["no_permission", "ignored"])
def test_a_cap_that_cannot_be_set_is_reported_as_requested_and_not_applied(
    made: VirtualNode, knobs: KnobWriter, how: str
) -> None:
    (uuid,) = made.uuids
    made.machine.setters(uuid, how)  # type: ignore[arg-type]
    knobs.set_cap(uuid, 200.0, 0.0)
    assert (knobs.caps[uuid].requested, knobs.caps[uuid].applied) == (200.0, None)


def test_a_device_without_compute_modes_is_left_alone(made: VirtualNode, knobs: KnobWriter) -> None:
    (uuid,) = made.uuids
    made.machine.unsupported(uuid, Ability.COMPUTE_MODE)
    knobs.close_door(uuid, 0.0)
    assert knobs.doors[uuid].trouble == "not_supported"


def test_a_batch_is_set_once_for_good_and_again_when_its_timeout_changes(made: VirtualNode, knobs: KnobWriter) -> None:
    made.offer(served("search"))
    made.advance(10)
    copy, process = made.copy("search"), made.process("search")
    filled = made.node.keeper.filler.fill(copy)
    knobs.set_batch(copy, filled, 6, 5.0, 0.0)
    assert (process.batch, process.batch_timeout_ms) == (6, 5.0)
    process.batch = 1  # only the process itself changes it back
    knobs.set_batch(copy, filled, 6, 5.0, 1000.0)
    assert process.batch == 1
    knobs.set_batch(copy, filled, 6, 7.0, 1001.0)
    assert (process.batch, process.batch_timeout_ms) == (6, 7.0)


def test_the_data_of_a_copy_is_removed_with_it(made: VirtualNode, knobs: KnobWriter) -> None:
    made.offer(served("search"))
    made.advance(10)
    copy = made.copy("search")
    knobs.set_batch(copy, made.node.keeper.filler.fill(copy), 6, 5.0, 0.0)
    knobs.forget(set())
    assert knobs.batches == {}
