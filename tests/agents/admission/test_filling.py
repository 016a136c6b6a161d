"""An admitted runtime is filled field by field: nothing of it is lost, and nothing is added."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.admission.filling import CONNECT, OWN, check_command, entry_names, fill_own
from agents.admission.reading import read_allow_list
from agents.templates import Confined, Filled, Probe
from agents.templates.filling import ArgumentRefused, Builtin
from tests.agents.admission.lists import COMMAND, CONTAINER, IMAGE, own, read_list, write_list

BUILTIN = Builtin("x-1.1.1", "GPU-1", port=7001, host="10.0.0.7", token="secret")
PROBES = {"health": {"path": "/healthz", "seconds": 500}, "startSeconds": 33}


def filled(folder: Path, runtime: dict[str, Any], kind: str = "process", serves: bool = True) -> Filled:
    found = fill_own(read_list(folder), own(runtime), BUILTIN, kind, serves)
    assert isinstance(found, Filled), found
    return found


def test_a_command_without_probes_is_up_once_it_accepts_connections(tmp_path: Path) -> None:
    assert filled(tmp_path, {**COMMAND, "env": {"TITLE": "at the port"}}) == Filled(
        template=OWN,
        argv=(sys.executable, "-m", "http.server", "--bind", "10.0.0.7", "7001", "--workers=2"),
        environment={"TITLE": "at the port"},
        health=Probe(CONNECT, "", seconds=2.0),
        start_seconds=120.0,
        drain_seconds=60.0,
        confined=Confined(host="10.0.0.7", secrets={"API_KEY": "swordfish"}),
        paths=("* /**", "!* /metrics"),
    )
    assert filled(tmp_path, {**COMMAND}, serves=False).health is None, "a job need not listen"


def test_an_image_has_an_address_a_port_and_folders_of_its_own(tmp_path: Path) -> None:
    runtime = {
        **CONTAINER,
        "probes": PROBES,
        "warmup": {"path": "/warm", "method": "POST", "body": "{}"},
        "drain": {"path": "/drain", "method": "PUT", "seconds": 30},
    }
    assert filled(tmp_path, runtime, "docker") == Filled(
        template=OWN,
        argv=("--model", "small/v1"),
        image=IMAGE,
        health=Probe("GET", "/healthz", "", 120.0),
        warm_up=Probe("POST", "/warm", "{}", 2.0, token="secret"),
        drain=Probe("PUT", "/drain", "", 30.0, token="secret"),
        start_seconds=33.0,
        drain_seconds=30.0,
        folders=(f"{tmp_path}/models:/volumes/models:ro",),
        confined=Confined(host="10.0.0.7", port=8000),
        paths=("* /**", "!* /healthz", "!* /drain", "!* /metrics"),
    )
    without = {name: value for name, value in runtime.items() if name != "port"} | {"drain": {"seconds": 30}}
    again = filled(tmp_path, without, "docker")
    assert again.confined is not None and again.confined.port == 7001, "the one that the agent chose"
    assert (again.drain, again.drain_seconds) == (None, 30.0)


def test_a_volume_is_where_the_list_says_and_a_command_sees_the_folder_itself(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    text = path.read_text().replace('[--model, "{path}"]', '[--model, "{volume.models}/{path}"]')
    path.write_text(text.replace("/models}\n", "/models, at: /data, write: true}\n"))
    runtime = {**CONTAINER, "args": ["--model", "{volume.models}/a"]}
    found = fill_own(read_allow_list(path), own(runtime), BUILTIN, "docker")
    assert isinstance(found, Filled)
    assert (found.argv, found.folders) == (("--model", "/data/a"), (f"{tmp_path}/models:/data:rw",))


def test_the_secrets_of_a_list_are_read_at_each_start(tmp_path: Path) -> None:
    listed = read_list(tmp_path)
    (tmp_path / "shop-key").unlink()
    refused = fill_own(listed, own(COMMAND), BUILTIN, "process")
    assert isinstance(refused, ArgumentRefused)
    assert (refused.field, refused.message) == (
        "secrets",
        f"the secret shop-key cannot be read: {tmp_path}/shop-key: No such file or directory",
    )


@pytest.mark.parametrize("way", ["the file", "its folder", "a folder above", "a link to it", "readable by everyone"])
def test_a_secret_that_others_could_put_there_is_not_given_to_a_copy(tmp_path: Path, way: str) -> None:
    """Who replaces the file chooses a copy's key; who puts a link there has a file of root's read out."""
    folder = tmp_path / "own" / "keys"
    folder.mkdir(mode=0o755, parents=True)
    secret = folder / "shop-key"
    secret.touch(mode=0o600)
    listed = replace(read_list(tmp_path), secrets={"shop-key": str(secret)})
    assert isinstance(fill_own(listed, own(COMMAND), BUILTIN, "process"), Filled)
    if way == "a link to it":
        elsewhere = tmp_path / "open"
        elsewhere.mkdir()
        secret.rename(elsewhere / "shop-key")
        secret.symlink_to(elsewhere / "shop-key")
        elsewhere.chmod(0o777)
    elif way == "readable by everyone":
        secret.chmod(0o604)
    else:
        {"the file": secret, "its folder": folder, "a folder above": tmp_path / "own"}[way].chmod(0o702)
    refused = fill_own(listed, own(COMMAND), BUILTIN, "process")
    assert isinstance(refused, ArgumentRefused)
    says = "readable by everyone; run chmod o-r" if way == "readable by everyone" else "is writable by others"
    assert (refused.field, says in refused.message) == ("secrets", True), refused.message


@pytest.mark.parametrize(("count", "says"), [(1, "LOG_LEVEL='x'"), (2, "(and 1 more)"), (3, "(and 2 more)")])
def test_a_refusal_names_the_first_fault_and_counts_the_others(tmp_path: Path, count: int, says: str) -> None:
    env = dict([("LOG_LEVEL", "x"), ("A", "x"), ("B", "x")][:count])
    refused = fill_own(read_list(tmp_path), own({**COMMAND, "env": env}), BUILTIN, "process")
    assert isinstance(refused, ArgumentRefused)
    assert says in refused.message
    assert ("more)" in refused.message) is (count > 1)


def test_a_command_that_saves_is_refused_where_its_script_is_open_to_others(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    script = tmp_path / "save.py"
    script.touch(mode=0o644)
    path.write_text(path.read_text().replace("admit:", f"admit:\n  save: {{argv: ['{{python}}', {script}]}}"))
    listed = read_allow_list(path)
    assert check_command(listed, ("{python}", str(script)), "process") is None
    script.chmod(0o646)
    refused = check_command(listed, ("{python}", str(script)), "process")
    assert refused is not None and refused.field == "checkpoint.command"
    assert "save.py is writable by others" in refused.message
    assert entry_names(listed.startable_by("process")) == "files, save"
    assert entry_names(()) == "nothing"
