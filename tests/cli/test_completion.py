"""Completion, asked of real shells the way Tab asks them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from cli.exits import Failed
from cli.talk.contexts import remember
from cli.verb_table import VERBS, load, parser_of
from cli.verbs.complete import find_offers
from cli.verbs.completion import SCRIPTS
from tests.cli.scripted import answer, scripted
from tests.support.patience import patience


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `gpuwright` on the PATH, the script written, and a config."""
    program = tmp_path / "bin" / "gpuwright"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cli.main "$@"\n')
    program.chmod(0o755)
    for shell, text in SCRIPTS.items():
        (tmp_path / f"complete.{shell}").write_text(text)
    return tmp_path


def environment_of(folder: Path) -> dict[str, str]:
    return os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "GPUWRIGHT_CONFIG": str(folder / "config.json"),
    }


def offered(folder: Path, line: str, **environment: str) -> list[str]:
    """What bash offers at the end of `line`."""
    words = line.split(" ")
    program = (
        f"source {shlex.quote(str(folder / 'complete.bash'))}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); "
        f"COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; "
        '_gpuwright; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    command, env = ["bash", "--norc", "-c", program], environment_of(folder) | environment
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience(), cwd=folder)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.slow
def test_verbs_flags_choices_and_kinds_are_offered(folder: Path) -> None:
    assert offered(folder, "gpuwright de") == ["delete", "describe"]
    assert offered(folder, "gpuwright get --no") == ["--no-headers"]
    assert offered(folder, "gpuwright get -o ") == ["table", "wide", "json", "yaml", "name"]
    assert offered(folder, "gpuwright get serv") == ["service", "services"]
    assert offered(folder, "gpuwright get -o wide -A serv") == ["service", "services"]


@pytest.mark.slow
def test_actions_of_a_verb_and_their_flags_are_offered(folder: Path) -> None:
    assert offered(folder, "gpuwright token ") == ["create", "join", "list", "revoke"]
    assert offered(folder, "gpuwright token create --scope a") == ["admin"]
    assert offered(folder, "gpuwright help exi") == ["exit-codes"]


def test_files_are_offered_where_a_file_is_expected(folder: Path) -> None:
    (folder / "fleet.yaml").touch()
    assert offered(folder, "gpuwright apply -f fle") == ["fleet.yaml"]


@pytest.mark.slow
def test_contexts_come_from_the_config(folder: Path) -> None:
    remember("prod", {"server": "http://x"}, select=True, path=folder / "config.json")
    assert offered(folder, "gpuwright config use p") == ["prod"]
    assert offered(folder, "gpuwright --context p") == ["prod"]


@pytest.mark.slow
def test_names_come_from_the_server(folder: Path) -> None:
    search = {"metadata": {"tenant": "shop", "name": "search"}}
    hostile = [{"metadata": {"name": name}} for name in ("a\x1bb", "sh$(touch${IFS}owned)")]
    body = json.dumps({"items": [search, *hostile]})
    with scripted(answer(200, body)) as server:
        assert offered(folder, "gpuwright get svc sh", GPUWRIGHT_SERVER=server.url) == ["shop/search"]
    assert not (folder / "owned").exists()


@pytest.mark.slow
def test_nodes_are_offered_to_verbs_that_take_nodes_alone(folder: Path) -> None:
    body = json.dumps({"items": [{"metadata": {"name": name}} for name in ("l4-1", "l4-2", "a100-1")]})
    for line, offers in (
        ("gpuwright drain l", ["l4-1", "l4-2"]),
        ("gpuwright cordon l4-1 l", ["l4-2"]),
        ("gpuwright reclaim a", ["a100-1"]),
        ("gpuwright profile resnet50 --on a", ["a100-1"]),
    ):
        with scripted(answer(200, body)) as server:
            assert offered(folder, line, GPUWRIGHT_SERVER=server.url) == offers, line


@pytest.mark.slow
def test_a_server_that_is_away_offers_nothing_and_says_nothing(folder: Path) -> None:
    assert offered(folder, "gpuwright get svc sh", GPUWRIGHT_SERVER="http://127.0.0.1:1") == []


@pytest.mark.slow
def test_every_verb_and_every_flag_that_its_help_shows_is_offered() -> None:
    assert [word for word, _ in find_offers([""])] == [verb.name for verb in VERBS]
    for verb in VERBS:
        with suppress(Failed):  # its extra is not installed
            parser = parser_of(verb, load(verb))
            offered = {word for word, _ in find_offers([verb.name, "-"])}
            assert offered == {word for word in parser._option_string_actions if word in parser.format_help()}


def test_flags_before_the_verb_and_values_that_are_missing_are_known() -> None:
    assert [word for word, _ in find_offers(["--server", "http://x", "-v", "token", ""])] == [
        "create", "join", "list", "revoke",
    ]  # fmt: skip
    assert find_offers(["get", "services", "--tenant", ""]) == []
    assert find_offers(["apply", "file", ""]) == []
    with pytest.raises(Failed):
        find_offers(["nonsense", ""])


@pytest.mark.slow
@pytest.mark.needs("zsh", "zsh")
def test_zsh_offers_the_same(folder: Path) -> None:
    program = (
        f"compdef() {{ : }}; source {folder}/complete.zsh; compadd() {{ shift; print -- $* }}\n"
        'try() { words=("$@"); CURRENT=$#; _gpuwright }\n'
        "try gpuwright get -A -o ''; try gpuwright token create --scope a; try gpuwright token ''"
    )
    command = ["zsh", "-fc", program]
    done = subprocess.run(command, env=environment_of(folder), capture_output=True, text=True, timeout=patience())
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["table wide json yaml name", "viewer operator admin node gateway", "create join list revoke"],
    )


@pytest.mark.slow
@pytest.mark.needs("fish", "fish")
def test_fish_offers_the_same(folder: Path) -> None:
    (folder / "fleet.yaml").touch()
    lines = (
        "gpuwright de", "gpuwright get -o ", "gpuwright token create --scope a", "gpuwright get serv",
        "gpuwright apply -f fle",
    )  # fmt: skip
    asked = "; ".join(f"complete -C '{line}' | string split -f1 \\t | string join ' '" for line in lines)
    command = ["fish", "--no-config", "-c", f"source {folder}/complete.fish; {asked}"]
    env = environment_of(folder)
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience(), cwd=folder)
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["delete describe", "json name table wide yaml", "admin", "service services", "fleet.yaml"],
    )
