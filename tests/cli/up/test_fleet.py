"""The fleet of `gpuwright up`: declared once on an empty world, never over somebody's own; all of it ends with up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.manifests.model import Kind
from app.store.database.database import Database
from cli.up.first_service import spell_waiting
from cli.up.fleet import DeclaredFleet, FleetSize, declare_fleet, fleet_file, generate_fleet
from simulation import world as worlds
from simulation.real.load_generator import LoadSource
from tests.simulation.worlds import small
from tests.support.patience import patience, until
from tests.support.ports import free_port


def said_nothing(line: str) -> None:
    raise AssertionError(line)


def test_the_fleet_has_sixteen_gpus_twelve_services_and_two_jobs() -> None:
    world = worlds.read_files(fleet_file())
    gpus = [int(str(one.spec["gpus"])) for one in world.of(Kind.NODE)]
    assert (sum(gpus), len(world.of(Kind.GPU_TYPE))) == (16, 3)
    assert (len(world.of(Kind.SERVICE)), len(world.of(Kind.JOB))) == (12, 2)


@pytest.mark.slow
def test_it_is_declared_once_and_found_again(database_url: str, tmp_path: Path) -> None:
    database = Database(database_url, pool_size=1, direct=True)
    said: list[str] = []
    first = declare_fleet(database, tmp_path, FleetSize(), said.append)
    assert first is not None
    assert said == ["declaring the simulated fleet"]
    assert sorted(first.nodes) == ["a100-1", "l4-1", "t4-1", "t4-2"]
    assert first.real_node == "t4-2"
    assert sorted(first.real_services) == ["media/archive-search", "media/captions"]
    assert all(words.count("=") == 2 for words in first.load)
    assert declare_fleet(database, tmp_path, FleetSize(), said_nothing) == first
    database.close()


def test_a_fleet_of_language_models_streams_to_four_services_of_a_real_node(database_url: str, tmp_path: Path) -> None:
    database = Database(database_url, pool_size=1, direct=True)
    made = declare_fleet(database, tmp_path, FleetSize(llm=True), lambda line: None)
    assert made is not None
    assert (made.real_node, made.real_kind, len(made.real_services)) == ("h100-1", "h100-80gb", 4)
    sources = [LoadSource.of(words) for words in made.load]
    assert {(source.path, source.lengths is not None) for source in sources} == {("/v1/completions", True)}
    world = database.read(worlds.read_store)
    assert (len(world.of(Kind.SERVICE)), len(world.of(Kind.JOB))) == (12, 2)
    database.close()


def test_a_world_of_ones_own_is_left_alone(database_url: str, tmp_path: Path) -> None:
    database = Database(database_url, pool_size=1, direct=True)
    worlds.put(database, small())
    said: list[str] = []
    assert declare_fleet(database, tmp_path, FleetSize(), said.append) is None
    assert "your own manifests" in said[0]
    database.close()


@pytest.mark.slow
def test_a_larger_fleet_is_generated_with_room_for_load_that_moves(database_url: str, tmp_path: Path) -> None:
    world = generate_fleet(20, 6)
    assert len(world.of(Kind.SERVICE)) == 6
    assert world.of(Kind.POLICY)[0].spec["mode"] == "auto"
    database = Database(database_url, pool_size=1, direct=True)
    made = declare_fleet(database, tmp_path, FleetSize(20, 6), lambda line: None)
    assert made == DeclaredFleet(tuple(one.name for one in world.of(Kind.NODE)))
    database.close()


@pytest.mark.soak  # a minute of waiting; scripts/smoke.py does it in CI
def test_all_services_are_served_and_nothing_is_left_after_ctrl_c(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    screen = tmp_path / "screen.txt"
    words = [sys.executable, "-m", "cli.main", "up", "--data-dir", str(tmp_path / "data"), "--port", str(free_port())]
    with screen.open("w") as output:
        up = subprocess.Popen(
            words, stdout=output, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "GPUWRIGHT_CONFIG": str(tmp_path / "config.json")},
        )  # fmt: skip
    try:
        until(lambda: "all 12 services are served" in screen.read_text() or up.poll() is not None, screen.read_text)
        assert up.poll() is None
    finally:
        up.send_signal(signal.SIGINT)
        assert up.wait(patience()) == 0
    assert _that_name(tmp_path) == []


def _that_name(folder: Path) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if str(folder) in command:
                found.append(command)
    return found


def test_services_that_wait_are_counted_and_some_named() -> None:
    assert spell_waiting(("a/b",), 12) == "1 of 12 services still wait: a/b; why: gpuwright explain plan"
    assert "4 of 12 services still wait: a/1, a/2, a/3 and 1 more;" in spell_waiting(("a/1", "a/2", "a/3", "a/4"), 12)
