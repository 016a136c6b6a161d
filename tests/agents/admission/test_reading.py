"""An allow-list is read strictly: each fault is named, and a file with one fault admits nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agents.admission.reading import AllowList, parse, read_allow_list, user_fault
from agents.contract.admitted import PatternFault, read_pattern
from agents.contract.spellings import is_dangerous
from agents.run.doctor.admission import allow_list
from agents.run.opening import AgentOptions, open_node
from agents.templates.strict_file import FileRefused
from tests.agents.admission.lists import IMAGE, write_list


def entry(text: str) -> str:
    return f"user: agent\nadmit:\n  x: {text}\n"


KEY = "MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo="  # of RFC 8032, 7.1
OFF_THE_CURVE = "MCowBQYDK2VwAyEAAgAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
WRITABLE = "volumes: {a: {folder: /srv/a, write: true}}\n"
NESTED = "volumes: {a: {folder: /srv/a, write: true}, b: {folder: /srv/a/b}}\n"
FAULTS = [
    ("", "Expected `object`"),
    ("admit: {}", "length >= 1"),
    (entry("{argv: [/bin/true], shell: true}"), "shell"),
    (entry("{about: nothing}"), "exactly one of argv"),
    (entry(f"{{argv: [/bin/true], image: {IMAGE}}}"), "exactly one of argv"),
    (entry("{image: 'shop/search:latest'}"), "must be pinned"),
    (entry("{image: 'shop/search@sha256:12'}"), "must be pinned"),
    (entry(f"{{repository: registry.example.com, key: {KEY}, image: {IMAGE}}}"), "exactly one of argv"),
    (entry("{repository: registry.example.com/team}"), "x.key: a repository needs the key"),
    (entry(f"{{image: {IMAGE}, key: {KEY}}}"), "x.key: a repository needs the key"),
    (entry(f"{{repository: registry.example.com/team/, key: {KEY}}}"), "must be a registry and a path"),
    (entry(f"{{repository: 'registry.example.com/team:1', key: {KEY}}}"), "must be a registry and a path"),
    (entry("{repository: registry.example.com/team, key: '?'}"), "x.key: not base64"),
    (entry(f"{{repository: registry.example.com/team, key: {KEY[16:]}}}"), "x.key: not an Ed25519 public key"),
    (entry(f"{{repository: registry.example.com/team, key: {OFF_THE_CURVE}}}"), "x.key: not a point"),
    (entry("{argv: [true]}"), "Expected `str`"),
    (entry("{argv: ['serve']}"), "the program must be fixed"),
    (entry("{argv: ['{word}']}"), "the program must be fixed"),
    (entry("{argv: ['/opt/{word}/serve']}"), "the program must be fixed"),
    (entry("{argv: [/bin/sh, -c, 'echo']}"), "runs whatever its arguments say"),
    (entry("{argv: [/usr/bin/env, '{word}']}"), "runs whatever its arguments say"),
    (entry("{argv: ['{python}', -c, '{text}']}"), "takes code"),
    (entry("{argv: ['{python}', '{path}']}"), "must be fixed"),
    (entry("{argv: ['{python}', -u]}"), "must be fixed"),
    (entry("{argv: [/usr/bin/node, '{path}']}"), "must be fixed"),
    (entry("{argv: [/usr/bin/node, '--require={path}', /srv/x.js]}"), "can hold code"),
    (entry("{argv: [/usr/bin/php, -d, k=v, '{path}']}"), "must be fixed"),
    (entry("{argv: [/usr/bin/node, --conditions, dev, '{path}']}"), "write -- before it, or --option=value"),
    (entry("{argv: [/usr/bin/node, --conditions, '{word}', /srv/x.js]}"), "can hold code"),
    (entry("{argv: [/usr/bin/php, -d, /srv/a/x.php, /srv/y.php]}") + WRITABLE, "/srv/a/x.php lies in the volume a"),
    (entry("{argv: [/usr/bin/perl, '-e{text}', /srv/x.pl]}"), "can hold code"),
    (entry("{argv: ['{python}', '-c{text}', x]}"), "can hold code"),
    (entry("{argv: ['{python}', -W, '{word}', /srv/x.py]}"), "can hold code"),
    (entry("{argv: ['{python}', -W, ignore, '{path}']}"), "must be fixed"),
    (entry("{argv: [/usr/bin/flock, /tmp/x, '{path}']}"), "runs whatever its arguments say"),
    (entry("{argv: ['{python}', -m, '{word}']}"), "must be fixed"),
    (entry("{argv: ['{python}', -m, shop.run, '{path}']}"), "first fixed word after shop.run"),
    (entry("{argv: ['{python}', -m, torch.distributed.run, '{path}'], unsafe: true}"), "must be fixed"),
    (entry("{argv: ['{python}', -m, torch.distributed.run, --nproc, '2', --log, '{path}', /x.py]}"), "must be fixed"),
    (entry("{argv: [/opt/shop/serve, '{path}']}"), "write `unsafe: true` beside argv"),
    (entry("{argv: [/opt/shop/serve, '{integer:1..9}', '-e{text}', --fast]}"), "x.argv[2]: -e{text} comes before the"),
    (entry("{argv: [/usr/bin/sh], unsafe: true}"), "runs whatever its arguments say"),
    (entry("{argv: ['{python}', '{path}'], unsafe: true}"), "must be fixed"),
    (entry(f"{{image: {IMAGE}, unsafe: true}}"), "x.unsafe: belongs to argv"),
    (entry("{argv: [/bin/true]}") + NESTED, "volumes.b.folder: /srv/a/b lies in the volume a"),
    (entry("{argv: [/bin/true]}") + WRITABLE + "secrets: {k: /srv/a/k}", "secrets.k: /srv/a/k lies in the volume a"),
    (entry("{argv: [/srv/a/serve]}") + WRITABLE, "admit.x.argv[0]: /srv/a/serve lies in the volume a"),
    (entry("{argv: ['{python}', /srv/a/x.py]}") + WRITABLE, "admit.x.argv[1]: /srv/a/x.py lies in the volume a"),
    (entry("{argv: [/bin/true, '{regex:.*}']}"), "is not a hole"),
    (entry("{argv: [/bin/true, '{integer:9..1}']}"), "has no range"),
    (entry("{argv: [/bin/true, 'a{b']}"), "unmatched brace"),
    (entry("{argv: [/bin/true, '{word}{word}{word}']}"), "at most 2"),
    (entry("{argv: [/bin/true, '{volume.models}']}"), "is not one of the entry's volumes"),
    (entry("{argv: [/bin/true], args: ['a']}"), "belongs to an image"),
    (entry("{argv: [/bin/true], environment: {LD_PRELOAD: '{text}'}}"), "can never be admitted"),
    (entry("{argv: [/bin/true], environment: {PYTHONPATH: '/srv'}}"), "can never be admitted"),
    (entry("{argv: [/bin/true], secrets: {API_KEY: none-such}}"), "none-such is not one of none"),
    (entry("{argv: [/bin/true], volumes: [none-such]}"), "none-such is not one of none"),
    (entry("{argv: [/bin/true]}") + "volumes: {etc: {folder: /etc}}", "which no copy may see"),
    (entry("{argv: [/bin/true]}") + "volumes: {all: {folder: /var}}", "which no copy may see"),
    (entry("{argv: [/bin/true]}") + "volumes: {engine: {folder: /var/run/docker.sock}}", "which no copy may see"),
    (entry("{argv: [/bin/true]}") + "volumes: {cron: {folder: /var/spool/cron}}", "which no copy may see"),
    (entry("{argv: [/bin/true]}") + "volumes: {homes: {folder: /home}}", "is or contains /home, which belongs to many"),
    (entry("{argv: [/bin/true]}") + "volumes: {up: {folder: /srv/../etc}}", "plain absolute path"),
    (entry("{argv: [/bin/true]}") + "volumes: {two: {folder: '/srv:/etc'}}", "matching regex"),
    (entry("{argv: [/bin/true]}") + "volumes: {a: {folder: /srv/a, at: /usr/lib}}", "which no copy may see"),
    ("user: 0\n" + entry("{argv: [/bin/true]}")[12:], ">= 1"),
    ("user: root\n" + entry("{argv: [/bin/true]}")[12:], "Invalid enum value"),
    (entry("{argv: [/bin/true]}") + "admit: {y: {argv: [/bin/false]}}", "duplicate keys"),
    ("admit: &a {x: {argv: [/bin/true]}}\nvolumes: *a", "aliases"),
]


@pytest.mark.parametrize(("text", "says"), FAULTS, ids=[fault[1] + str(at) for at, fault in enumerate(FAULTS)])
def test_a_faulty_list_is_refused_and_the_fault_is_named(text: str, says: str) -> None:
    with pytest.raises(FileRefused) as refused:
        parse(text, "allow-list.yaml")
    assert says in str(refused.value)
    assert all(fault.startswith("allow-list.yaml: ") for fault in refused.value.faults)


def test_what_an_interpreter_runs_may_follow_options_that_a_manifest_fills_in() -> None:
    listed = entry("{argv: [/usr/bin/java, '-Xmx{integer:1..8}g', -cp, /srv/lib, Main, '{word}']}")
    assert [admitted.name for admitted in parse(listed, "allow-list.yaml").entries] == ["x"]
    listed = entry("{argv: [/usr/bin/node, --max-http-header-size, '{integer}', /srv/x.js, '{word}']}")
    assert parse(listed, "allow-list.yaml").entries


INTERPRETERS = (
    "torchrun", "uvicorn", "julia", "ipython3", "python3.11-dbg", "python3.13t", "perl5.36-x86_64-linux-gnu", "nodejs",
    "lua5.4", "ruby3.1", "php8.2-cgi", "Rscript", "pypy3", "gunicorn",
)  # fmt: skip
STARTERS = ("mpirun", "make", "mawk", "expect", "uv", "sed", "accelerate", "tmux", "ld-linux-x86-64.so.2", "ld-2.36.so")


@pytest.mark.parametrize("program", INTERPRETERS)
@pytest.mark.parametrize("words", ["'{path}'", "--threads, '{word}'", "'{word}', /srv/x", "--threads=2, '{path}'"])
def test_what_an_interpreter_runs_is_fixed_and_stands_before_any_free_hole(program: str, words: str) -> None:
    with pytest.raises(FileRefused, match="must be fixed"):
        parse(entry(f"{{argv: [/usr/bin/{program}, {words}], unsafe: true}}"), "allow-list.yaml")
    fixed = entry(f"{{argv: [/usr/bin/{program}, --threads=2, /srv/x, '{{path}}']}}")
    assert parse(fixed, "allow-list.yaml").entries


@pytest.mark.parametrize("program", STARTERS)
def test_a_program_that_starts_what_its_arguments_name_is_never_admitted(program: str) -> None:
    with pytest.raises(FileRefused, match="runs whatever its arguments say"):
        parse(entry(f"{{argv: [/usr/bin/{program}, fixed], unsafe: true}}"), "allow-list.yaml")


@pytest.mark.parametrize("words", ["--threads 2", "--threads, '2', '{path}'", "--standalone, '{path}', /srv/x.py"])
def test_the_value_of_a_launchers_option_is_not_what_it_runs(words: str) -> None:
    with pytest.raises(FileRefused, match="must be fixed"):
        parse(entry(f"{{argv: [/usr/bin/torchrun, {words}]}}"), "allow-list.yaml")
    for runs in ("--threads, '2', /srv/x.py", "-m, shop.train", "--standalone, --threads=2, /srv/x.py"):
        assert parse(entry(f"{{argv: [/usr/bin/torchrun, {runs}]}}"), "allow-list.yaml").entries


@pytest.mark.parametrize(
    "words",
    ["--model, '{path}'", "'{integer}', --model, '{path}'", "'{choice:a|b}'", "serve, '{word}', '{text}'", "'{port}'"],
)
def test_an_unknown_program_may_have_free_holes_after_its_first_fixed_word(words: str) -> None:
    assert parse(entry(f"{{argv: [/opt/shop/serve, {words}]}}"), "allow-list.yaml").entries
    assert parse(entry("{argv: [/opt/shop/serve, '{path}', '{text}'], unsafe: true}"), "allow-list.yaml").entries


LOADERS = (
    "OMP_TOOL_LIBRARIES", "JULIA_LOAD_PATH", "R_PROFILE", "GST_PLUGIN_PATH", "QT_PLUGIN_PATH", "VLLM_PLUGINS",
    "HF_ENDPOINT", "ORT_DYLIB_PATH", "RAY_RUNTIME_ENV_HOOK", "vllm_server_dev_mode", "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
    "OMPI_MCA_orte_launch_agent",
)  # fmt: skip


@pytest.mark.parametrize("variable", LOADERS)
def test_a_variable_that_changes_what_runs_can_never_be_admitted(variable: str) -> None:
    with pytest.raises(FileRefused, match=f"the variable {variable} can never be admitted"):
        parse(entry(f"{{argv: [/bin/true], environment: {{{variable}: '{{text}}'}}}}"), "allow-list.yaml")
    assert not is_dangerous("HF_TOKEN") and not is_dangerous("OMP_NUM_THREADS") and not is_dangerous("LOG_LEVEL")


@pytest.mark.parametrize(
    ("user", "runs_as", "is_named"), [("user: 20001", 20001, True), ("user: agent", None, True), ("", None, False)]
)
def test_a_list_says_whom_copies_run_as(user: str, runs_as: int | None, is_named: bool) -> None:
    found = parse(f"{user}\nadmit: {{x: {{argv: [/bin/true]}}, y: {{image: '{IMAGE}'}}}}\n", "allow-list.yaml")
    assert (found.user, found.says_user) == (runs_as, is_named)
    assert [[entry.name for entry in found.startable_by(kind)] for kind in ("process", "docker")] == [["x"], ["y"]]


def test_a_list_that_others_could_have_written_is_refused(tmp_path: Path) -> None:
    path = write_list(tmp_path)
    path.chmod(0o666)
    with pytest.raises(FileRefused, match=r"allow-list.yaml is writable by others than its owner \(mode 666\)"):
        read_allow_list(path)
    path.chmod(0o600)
    tmp_path.chmod(0o777)
    with pytest.raises(FileRefused, match=f"{tmp_path} is writable by others"):
        read_allow_list(path)
    tmp_path.chmod(0o700)
    assert read_allow_list(path).kept == (str(path),)


@pytest.mark.slow
def test_a_node_whose_list_has_a_fault_admits_nothing(tmp_path: Path) -> None:
    path = write_list(tmp_path, more="extra: 1\n")
    options = AgentOptions(tmp_path / "node", device="simulated", simulated_gpus=1, allow_list=path)
    assert [finding.level for finding in allow_list(options)] == ["fail"]
    from agents.devices.simulated.remote import Switches

    try:
        assert open_node(options).allow_list == AllowList()
    finally:
        Switches(tmp_path / "node" / "simulated").quit()


def test_an_agent_that_is_root_is_told_whom_commands_run_as() -> None:
    without, agent, other = AllowList(), AllowList(says_user=True), AllowList(user=20001, says_user=True)
    if os.geteuid() == 0:
        assert "name the UID" in user_fault(without, under_mps=False)
        assert user_fault(other, under_mps=False) == ""
        assert "an MPS daemon serves its own user only" in user_fault(other, under_mps=True)
    else:
        assert user_fault(without, under_mps=False) == ""
        assert "only an agent that is root" in user_fault(other, under_mps=False)
    assert user_fault(agent, under_mps=True) == ""


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("--port={port}", ["--port={port}"], ["--port=80", "--port={host}"]),
        ("{word}", ["a", "A-1_2.b"], ["", "-a", "a b", "a/b", ".a", "\u00e4", "a" * 201]),
        ("{path}", ["a", "a/b.c", "a/"], ["/a", "../a", "a/../b", "a//b", "a/./b", "~/a"]),
        ("{integer:-2..8}", ["-2", "8", "007"], ["9", "-3", "1.0", "1e1", "\u0663", " 1", "1\n"]),
        ("a{choice:x|y.z}b", ["axb", "ay.zb"], ["ayb", "ayxzb", "a|b", "axyb"]),
        ("{text}", ["", "any thing; $(x)", "a" * 200], ["a\nb", "{port}", "a" * 201]),
        ("1+1=2.*", ["1+1=2.*"], ["11=2", "1+1=2xx"]),
    ],
)
def test_a_pattern_fits_whole_words_only(pattern: str, fits: list[str], does_not: list[str]) -> None:
    read = read_pattern(pattern)
    assert [text for text in fits if not read.matches(text)] == []
    assert [text for text in does_not if read.matches(text)] == []


def test_a_pattern_cannot_keep_a_reader_busy() -> None:
    """Nodes report their patterns: one that lies must not occupy the control plane."""
    with pytest.raises(PatternFault):
        read_pattern("{text}" * 3)
    assert not read_pattern("{text}a{text}b").matches("a" * 1000)
