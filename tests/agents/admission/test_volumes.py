"""A volume is the folder that its path leads to at each start: no other user can lead it to another one."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from agents.admission.filling import fill_own, find_unusable
from agents.admission.reading import AllowList, read_allow_list
from agents.run.doctor.admission import allow_list
from agents.run.opening import AgentOptions
from agents.templates import Filled
from agents.templates.filling import ArgumentRefused, Builtin
from tests.agents.admission.lists import CONTAINER, own, write_list

STRANGER = 20001


def listed(folder: Path, more: str = "") -> AllowList:
    """Returns the list of an agent whose own folder is `node`, which contains its models."""
    path = write_list(folder)
    path.write_text(
        path.read_text().replace(f"models: {{folder: {folder / 'models'}}}", more) if more else path.read_text()
    )
    (folder / "node" / "models").mkdir(parents=True, exist_ok=True)
    return read_allow_list(path, folder / "node", folder / "node" / "models")


def started(found: AllowList) -> Filled | ArgumentRefused:
    return fill_own(found, own(CONTAINER), Builtin("c", "", port=7001), "docker")


def test_a_volume_is_mounted_by_its_real_path_as_it_is_at_each_start(tmp_path: Path) -> None:
    (tmp_path / "v1").mkdir(mode=0o755)
    (tmp_path / "current").symlink_to("v1")
    found = listed(tmp_path, f"models: {{folder: {tmp_path}/current}}")
    filled = started(found)
    assert isinstance(filled, Filled)
    assert filled.folders == (f"{tmp_path}/v1:/volumes/models:ro",)
    (tmp_path / "v1").chmod(0o777)
    refused = started(found)
    assert isinstance(refused, ArgumentRefused)
    assert "v1 is writable by others" in refused.message


def linked(target: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        (folder / "link").symlink_to(target.replace("FOLDER", str(folder)))
        return f"models: {{folder: {folder}/link, write: true}}"

    return make


def in_open_folder(folder: Path) -> str:
    (folder / "open" / "data").mkdir(parents=True)
    (folder / "open").chmod(0o777)
    return f"models: {{folder: {folder}/open/data}}"


def in_writable_volume(folder: Path) -> str:
    (folder / "cache" / "models").mkdir(parents=True)
    (folder / "link").symlink_to(folder / "cache")
    return f"models: {{folder: {folder}/cache/models}}\n  cache: {{folder: {folder}/link, write: true}}"


REFUSED: dict[str, tuple[Callable[[Path], str], str]] = {
    "a link to a system folder": (linked("/etc"), "/etc is, contains or lies in /etc"),
    "a link to the root": (linked("/"), "is, contains or lies in"),
    "a link to the homes of all": (linked("/home"), "/home is or contains /home, which belongs to many"),
    "a link to a folder of all": (linked("/tmp"), "is or contains /tmp"),
    "a link to the agent's folder": (linked("FOLDER/node"), "node, which no copy may see"),
    "a link into the agent's folder": (linked("FOLDER/node/copies"), "node, which no copy may see"),
    "a folder that contains the agent's": (linked("FOLDER"), "which no copy may see"),
    "a folder below one that everyone writes": (in_open_folder, "open is writable by others"),
    "a folder of a volume that copies write": (in_writable_volume, "lies in the volume cache"),
    "a folder that is not there": (linked("FOLDER/absent"), "absent does not exist"),
    "a file": (linked("FOLDER/shop-key"), "is not a folder"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_volume_that_leads_elsewhere_is_refused(tmp_path: Path, kind: str) -> None:
    make, says = REFUSED[kind]
    (tmp_path / "node" / "copies").mkdir(parents=True)
    found = listed(tmp_path, make(tmp_path))
    refused = started(found)
    assert isinstance(refused, ArgumentRefused)
    assert (refused.reason, refused.field) == ("not_admitted", "volumes")
    assert says in refused.message


def test_the_models_may_be_a_volume_even_in_the_agents_folder(tmp_path: Path) -> None:
    filled = started(listed(tmp_path, f"models: {{folder: {tmp_path}/node/models}}"))
    assert isinstance(filled, Filled)
    assert filled.folders == (f"{tmp_path}/node/models:/volumes/models:ro",)


@pytest.mark.needs_root("to give a folder away")
def test_only_a_volume_that_copies_write_may_belong_to_them(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    os.chown(folder, STRANGER, STRANGER)
    assert isinstance(started(listed(tmp_path, f"models: {{folder: {folder}, write: true}}")), Filled)
    refused = started(listed(tmp_path, f"models: {{folder: {folder}}}"))
    assert isinstance(refused, ArgumentRefused)
    assert f"belongs to user {STRANGER}" in refused.message


def test_doctor_names_what_the_list_admits_and_the_node_would_refuse(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    program = tmp_path / "serve"
    program.touch(mode=0o755)
    path.write_text(path.read_text().replace("admit:", f"admit:\n  shop: {{argv: [{program}]}}"))
    options = AgentOptions(tmp_path / "node", device="cores", allow_list=path)
    assert find_unusable(read_allow_list(path), "process") == []
    program.chmod(0o777)
    (tmp_path / "models").rmdir()
    findings = list(islice(allow_list(options), 3))  # without the check that asks the network
    assert [finding.level for finding in findings] == ["ok", "fail", "fail"]
    assert f"admit.shop: {program} is writable by others" in findings[1].found
    assert f"volumes.models: {tmp_path}/models does not exist" in findings[2].found
