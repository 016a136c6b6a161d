"""A copy that does not end by itself is ended alone, and only one that holds its GPU for ever takes others along."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.nodes import served
from tests.support.simulated_processes import Behaviour
from tests.support.virtual import VirtualNode, virtual

NEIGHBOUR = served("search", sm=40)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[VirtualNode]:
    with virtual(tmp_path) as node:
        yield node


def begin(made: VirtualNode, deaf: Behaviour) -> None:
    """A copy that hears no signal, which MPS does not terminate, is to leave its neighbour."""
    made.behaviours["deaf"] = deaf
    made.offer(NEIGHBOUR, served("deaf", sm=40))
    made.advance(15)
    assert made.ready == ["deaf", "search"]
    made.machine.mps_terminates(made.uuids[0], False)
    made.offer(NEIGHBOUR)


def test_a_copy_that_mps_does_not_terminate_is_killed_and_its_neighbour_stays(made: VirtualNode) -> None:
    begin(made, Behaviour(ignores_term=True, ignores_drain=True))
    neighbour, deaf = made.process("search"), made.process("deaf")
    made.advance(120)
    assert deaf.exited_at is not None
    assert [copy.instance for copy in made.node.keeper.copies()] == ["search"]
    assert made.process("search") is neighbour
    assert made.ready == ["search"]


@pytest.mark.slow
def test_a_gpu_that_a_killed_copy_does_not_leave_is_emptied_until_it_has_left(made: VirtualNode) -> None:
    begin(made, Behaviour(ignores_term=True, ignores_drain=True, ignores_kill=True))
    neighbour, deaf = made.process("search"), made.process("deaf")
    made.advance(180)
    assert neighbour.exited_at is not None
    assert made.ready == []
    assert made.held == {"search": "gpu_recycled"}
    deaf.exit_by(made.now)
    made.advance(60)
    assert made.ready == ["search"]
