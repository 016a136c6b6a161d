"""`replay` of a plan that a planner recorded: fetched from a server, or from a file that was saved."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cli.main import main
from simulation.run import open_simulation
from simulation.world import read_files
from tests.cli.conftest import Run
from tests.cli.offline import ROOT
from tests.support.server import RunningServer


@pytest.fixture(scope="module")
def generation(server: RunningServer) -> int:
    """A plan for the quickstart's fleet, whose nodes have reported."""
    with open_simulation(server.database_url, read_files(ROOT / "examples" / "quickstart.yaml")) as simulation:
        for _ in simulation.seconds(90):
            if simulation.last and simulation.last.generation:
                return simulation.last.generation
    raise AssertionError("no plan came")


@pytest.fixture(scope="module")
def saved(server: RunningServer, generation: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of that plan, as the server answers it."""
    reply = server.request("GET", f"/api/v1/plans/{generation}/record")
    assert reply.status == 200, reply.text
    file = tmp_path_factory.mktemp("replay") / "record.json"
    file.write_text(reply.text)
    return file


@pytest.mark.slow
def test_a_recorded_plan_comes_out_the_same(run: Run, generation: int, tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    done = run("replay", str(generation), "--save", str(file))
    assert (done.code, done.out) == (0, f"plan {generation}: identical\n"), done.err
    assert {line.split(":")[0] for line in done.err.splitlines()} <= {"deciding again"}, "only a long wait is shown"
    again = run("replay", "-f", str(file), "--json")
    told = {"plan": generation, "identical": True, "difference": "", "message": ""}
    assert (again.code, json.loads(again.out)) == (0, told)


@pytest.mark.slow
def test_what_differs_is_exit_1_and_named(run: Run, generation: int, saved: Path, tmp_path: Path) -> None:
    file, record = tmp_path / "record.json", json.loads(saved.read_text())
    record["plan"]["instances"][0]["sm_percent"] += 1
    file.write_text(json.dumps(record))
    done = run("replay", "-f", str(file))
    assert done.code == 1
    assert done.out.startswith(f"plan {generation}: different: plan.instances[0].sm_percent: ")


@pytest.mark.slow
def test_other_versions_are_exit_2_and_named(run: Run, saved: Path, tmp_path: Path) -> None:
    file, record = tmp_path / "record.json", json.loads(saved.read_text())
    record["versions"]["numba"] = "0.1"
    file.write_text(json.dumps(record))
    done = run("replay", "-f", str(file))
    assert done.code == 2
    assert "numba is " in done.err
    assert "and was 0.1" in done.err


@pytest.mark.slow
def test_a_plan_that_never_was_is_reported_as_unknown(run: Run) -> None:
    done = run("replay", "999999")
    assert done.code == 1
    assert "999999" in done.err


@pytest.mark.parametrize("words", [(), ("7", "-f", "record.json"), ("x",), ("-f", "/nonexistent/record.json")])
def test_wrong_usage_is_exit_2(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", *words]) == 2
    assert capsys.readouterr().err


def test_a_file_that_is_no_record_is_exit_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "record.json"
    file.write_text("{}")
    assert main(["replay", "-f", str(file)]) == 2
    assert "not a record of a decision" in capsys.readouterr().err
