"""The context of `gpuwright up`: named after its folder, never in place of another that answers, gone when it ends."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.talk.contexts import load, save
from cli.up.local_context import enter, leave, name_of


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.json"
    monkeypatch.setenv("GPUWRIGHT_CONFIG", str(path))
    return path


@pytest.fixture
def answering() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def entry(folder: Path, server: str = "http://127.0.0.1:9") -> dict[str, str]:
    return {"server": server, "tokenFile": str(folder / "admin.token")}


def test_it_is_named_after_the_folder() -> None:
    assert name_of(Path("/srv/.gpuwright")) == "local"
    assert name_of(Path("/srv/own fleet")) == "own-fleet"
    assert name_of(Path("/srv/ü")) == "local"


def test_another_one_that_answers_keeps_its_name_and_entry(config: Path, tmp_path: Path, answering: str) -> None:
    first = enter(tmp_path / "a/own", entry(tmp_path / "a/own", answering))
    second = enter(tmp_path / "b/own", entry(tmp_path / "b/own"))
    assert (first.name, second.name) == ("own", "own-2")
    known = load(config)
    assert known["contexts"]["own"]["server"] == answering
    assert known["current"] == "own-2"


def test_what_was_killed_is_forgotten_by_the_next_one_and_what_was_current_before_it_comes_back(
    config: Path, tmp_path: Path, answering: str
) -> None:
    fleet = {"server": "https://fleet.example", "token": "gw_x_y"}
    save(config, {"current": "fleet", "contexts": {"fleet": fleet}})
    alive = enter(tmp_path / "alive", entry(tmp_path / "alive", answering))
    for name in ("a", "b"):
        enter(tmp_path / name, entry(tmp_path / name))  # killed: nothing listens at its address, and nobody left it
    made = enter(tmp_path / "c/a", entry(tmp_path / "c/a"))
    assert made.name == "a"
    assert load(config)["contexts"].keys() == {"fleet", "alive", "a"}
    leave(made)
    assert load(config)["current"] == "alive"
    leave(alive)
    assert load(config) == {"current": "fleet", "contexts": {"fleet": fleet}}


def test_one_that_was_killed_is_forgotten_by_another_one_at_its_address(
    config: Path, tmp_path: Path, answering: str
) -> None:
    enter(tmp_path / "data", entry(tmp_path / "data", answering))
    leave(enter(tmp_path / "moved", entry(tmp_path / "moved", answering)))
    assert load(config) == {"current": "", "contexts": {}}


def test_one_that_was_killed_is_taken_up_by_its_next_start_and_ends_with_it(config: Path, tmp_path: Path) -> None:
    fleet = {"server": "https://fleet.example", "token": "gw_x_y"}
    save(config, {"current": "fleet", "contexts": {"fleet": fleet}})
    enter(tmp_path / "own", entry(tmp_path / "own"))
    leave(enter(tmp_path / "own", entry(tmp_path / "own")))
    assert load(config) == {"current": "fleet", "contexts": {"fleet": fleet}}


def test_a_persons_own_context_is_never_replaced(config: Path, tmp_path: Path) -> None:
    save(config, {"current": "own", "contexts": {"own": {"server": "https://fleet.example", "token": "gw_x_y"}}})
    made = enter(tmp_path / "own", entry(tmp_path / "own"))
    assert made.name == "own-2"
    leave(made)
    assert json.loads(config.read_text()) == {
        "current": "own", "contexts": {"own": {"server": "https://fleet.example", "token": "gw_x_y"}}
    }  # fmt: skip


def test_leaving_removes_it_and_what_was_changed_meanwhile_stays(config: Path, tmp_path: Path) -> None:
    made = enter(tmp_path / "own", entry(tmp_path / "own"))
    leave(made)
    assert load(config) == {"current": "", "contexts": {}}
    again = enter(tmp_path / "own", entry(tmp_path / "own"))
    changed = {"current": "own", "contexts": {"own": {**again.entry, "tenant": "shop"}}}
    save(config, changed)
    leave(again)
    assert load(config) == changed
