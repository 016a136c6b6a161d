"""Completion, asked of real shells the way Tab asks them."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from cli.completion import commands, script
from cli.contexts import remember
from tests.cli.scripted import answer, scripted
from tests.support.patience import patience


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with `gpuwright` on the PATH, the script written, and a config."""
    program = tmp_path / "bin" / "gpuwright"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m cli.main "$@"\n')
    program.chmod(0o755)
    (tmp_path / "complete.bash").write_text(script("bash"))
    return tmp_path


def offered(folder: Path, line: str, **environment: str) -> list[str]:
    """What bash offers at the end of `line`."""
    words = line.split(" ")
    program = (
        f"source {shlex.quote(str(folder / 'complete.bash'))}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); "
        f"COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}; "
        '_gpuwright; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    env = os.environ | {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "GPUWRIGHT_CONFIG": str(folder / "config.json"),
    }
    command = ["bash", "--norc", "-c", program]
    done = subprocess.run(
        command, env=env | environment, capture_output=True, text=True, timeout=patience(), cwd=folder
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_verbs_flags_choices_and_kinds_are_offered(folder: Path) -> None:
    assert offered(folder, "gpuwright de") == ["delete", "describe"]
    assert offered(folder, "gpuwright get --no") == ["--no-headers"]
    assert offered(folder, "gpuwright get -o ") == ["table", "wide", "json", "yaml", "name"]
    assert offered(folder, "gpuwright get serv") == ["service", "services"]
    assert offered(folder, "gpuwright get -o wide -A serv") == ["service", "services"]


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
    body = '{"items": [{"metadata": {"tenant": "shop", "name": "search"}}, {"metadata": {"name": "a\\u001bb"}}]}'
    with scripted(answer(200, body)) as server:
        assert offered(folder, "gpuwright get svc sh", GPUWRIGHT_SERVER=server.url) == ["shop/search"]


@pytest.mark.slow
def test_a_server_that_is_away_offers_nothing_and_says_nothing(folder: Path) -> None:
    assert offered(folder, "gpuwright get svc sh", GPUWRIGHT_SERVER="http://127.0.0.1:1") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_verb_and_flag_is_in_every_script(shell: str) -> None:
    text = script(shell)
    for command in commands():
        assert command.path[-1] in text
        for flag in command.flags:
            assert all(word.lstrip("-") in text for word in flag.words)


@pytest.mark.needs("zsh", "zsh")
def test_zsh_offers_the_same(tmp_path: Path) -> None:
    (tmp_path / "complete.zsh").write_text(script("zsh"))
    program = (
        f"compdef() {{ : }}; source {tmp_path}/complete.zsh; compadd() {{ shift; print -- $* }}\n"
        "try() { words=($@); CURRENT=$#; _gpuwright }\n"
        "try gpuwright get -A -o ''; try gpuwright token create --scope a; try gpuwright token ''"
    )
    done = subprocess.run(["zsh", "-fc", program], capture_output=True, text=True, timeout=patience())
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["table wide json yaml name", "viewer operator admin node gateway", "create join list revoke"],
    )


@pytest.mark.needs("fish", "fish")
def test_fish_offers_the_same(tmp_path: Path) -> None:
    (tmp_path / "complete.fish").write_text(script("fish"))
    lines = ("gpuwright de", "gpuwright get -o ", "gpuwright token create --scope a", "gpuwright get serv")
    asked = "; ".join(f"complete -C '{line}' | string split -f1 \\t | string join ' '" for line in lines)
    program = f"source {tmp_path}/complete.fish; {asked}"
    done = subprocess.run(["fish", "--no-config", "-c", program], capture_output=True, text=True, timeout=patience())
    assert (done.stderr, done.stdout.splitlines()) == (
        "",
        ["delete describe", "json name table wide yaml", "admin", "service services"],
    )
