"""How long a hand-over in `overlap` may hold a GPU above 100 SM%: until it is warm, and while the gateway is away."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from agents.keeper.copies import Stage
from agents.keeper.room import excess_sm_percent
from agents.node.node import LocalNode
from tests.agents.keeper.test_faults import HANGS
from tests.agents.keeper.test_routing import Gateway
from tests.support.nodes import Machine, assigned, copy_of, kill, machine, ready, running, served
from tests.support.patience import patience, until

pytestmark = pytest.mark.slow

SECONDS = 1.0  # of a hand-over


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Machine]:
    with machine(tmp_path, ["v100-16gb"]) as made:
        yield made


def stages(node: LocalNode) -> list[Stage]:
    return [copy.stage for copy in sorted(node.keeper.copies(), key=lambda copy: copy.born)]


def held(node: LocalNode) -> dict[str, str]:
    return {start.instance: start.missing.reason for start in node.keeper.held}


def test_a_new_copy_that_is_not_warm_in_time_is_ended_and_the_old_one_serves(one: Machine) -> None:
    one.template("hangs", HANGS.replace("seconds: 600", "seconds: 9"))
    with running(one) as node:
        node.offer(assigned(1, served("search-1", sm=60), handover="overlap", handover_seconds=SECONDS))
        until(lambda: ready(node, "search-1"), "it is ready")
        first = copy_of(node, "search-1")
        slow = msgspec.structs.replace(served("search-1", sm=70), template="hangs", args={})
        node.offer(assigned(2, slow, handover="overlap", handover_seconds=SECONDS))
        until(lambda: excess_sm_percent(list(node.keeper.copies())) > 0, "both are there, above 100 SM%")
        until(lambda: held(node) == {"search-1": "handover_timeout"}, "the new one is given up")
        until(lambda: node.keeper._clock() - first.born > 4 * SECONDS, "there was time for more attempts")
        assert excess_sm_percent(list(node.keeper.copies())) <= 30, "the next attempt waits until this one is gone"
        assert next(copy for copy in node.keeper.copies() if copy.id == first.id).stage is Stage.READY
        for pid in one.copies():
            kill(pid)  # or its end would wait for the answer that it is asked for


def test_a_warm_copy_waits_for_a_gateway_that_is_away_beyond_the_time_and_no_longer(one: Machine) -> None:
    gateway = Gateway()
    with running(one, routes=gateway) as node:
        node.offer(assigned(1, served("search-1", sm=60), handover="overlap", handover_seconds=SECONDS))
        until(lambda: ready(node, "search-1"), "it is ready")
        gateway.away = True
        changed = served("search-1", sm=70)
        node.offer(assigned(2, changed, handover="overlap", handover_seconds=patience()))
        until(lambda: stages(node) == [Stage.READY, Stage.ROUTING], "the new one is warm")
        node.offer(assigned(3, changed, handover="overlap", handover_seconds=SECONDS))
        _, new = sorted(node.keeper.copies(), key=lambda copy: copy.born)
        until(lambda: node.keeper._clock() - new.born > 2 * SECONDS, "the time is over")
        until(lambda: held(node) == {"search-1": "gateway_away"}, "what it waits for is named")
        assert stages(node) == [Stage.READY, Stage.ROUTING]
        assert excess_sm_percent(list(node.keeper.copies()))
        gateway.away = False
        until(lambda: ready(node, "search-1"), "the old one is gone as soon as the gateway knows the new one")
        assert not excess_sm_percent(list(node.keeper.copies()))
