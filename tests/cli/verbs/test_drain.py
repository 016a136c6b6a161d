"""Cordons and drains as an operator sees them: in the list of nodes, and waited for."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.cli.conftest import Run
from tests.support.planned import Planned, planned_fleet
from tests.support.postgres import DatabaseServer
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def fleet(postgres: DatabaseServer) -> Iterator[Planned]:
    with planned_fleet(postgres) as planned:
        yield planned


@pytest.fixture(scope="module")
def server(fleet: Planned) -> RunningServer:
    return fleet.server


def cordon_of(run: Run, node: str) -> str:
    lines = run("get", "nodes").lines
    at = lines[0].index("CORDON")
    (line,) = [line for line in lines if line.startswith(f"{node} ")]
    return line[at : lines[0].index("RECLAIM")].strip()


@pytest.mark.slow
def test_the_list_of_nodes_shows_cordons_and_drains(run: Run) -> None:
    assert cordon_of(run, "node-0") == "-"
    assert run("cordon", "node-0/1").code == 0
    assert cordon_of(run, "node-0") == "cordon of GPU 1"
    assert run("uncordon", "node-0").code == 0
    assert cordon_of(run, "node-0") == "-"
    assert "cordons" not in run("get", "node", "node-0", "-o", "json").out


@pytest.mark.slow
def test_nothing_is_changed_where_one_of_several_names_is_wrong(run: Run) -> None:
    for verb in ("drain", "cordon", "uncordon", "reclaim"):
        done = run(verb, "node-0", "node-that-is-not-there")
        assert (done.code, done.out) == (1, "")
        assert "there is no Node node-that-is-not-there" in done.err
        assert cordon_of(run, "node-0") == "-", verb
    for place, says in (("node-0/99", "there is no GPU 99"), ("node-0/x", "not a node or GPU")):
        done = run("drain", "node-0", place)
        assert done.code != 0
        assert says in done.err
        assert cordon_of(run, "node-0") == "-"


@pytest.mark.slow
def test_a_drain_that_is_not_done_in_time_names_what_is_left(run: Run) -> None:
    done = run("drain", "node-0", "--wait", "--timeout", "1s")
    assert done.code == 1
    assert "node-0 is not empty after 1 s: " in done.err
    assert cordon_of(run, "node-0") == "drain"
    assert run("uncordon", "node-0").code == 0


@pytest.mark.slow
def test_a_drain_says_how_much_there_is_to_move(run: Run) -> None:
    done = run("drain", "node-0")
    assert done.code == 0
    assert re.search(r"node-0: \d+ cop(y|ies) to move; with --wait this returns after the last one", done.err)
    assert run("uncordon", "node-0").code == 0


@pytest.mark.slow
def test_a_drain_of_a_node_on_which_nothing_runs_is_done_at_once(run: Run) -> None:
    spec = json.loads(run("get", "node", "node-1", "-o", "json").out)["spec"]
    idle = {"apiVersion": "gpuwright/v1", "kind": "Node", "metadata": {"name": "idle"}, "spec": spec}
    assert run("apply", "-f", "-", stdin=json.dumps(idle)).code == 0
    done = run("drain", "idle", "--wait", "--timeout", "1s")
    assert done.code == 0, done.err
    assert done.lines[-1] == "idle is empty"
