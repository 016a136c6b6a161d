"""Whole processes: what they say, what they load, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.exits import MEANINGS
from cli.verb_table import VERBS
from tests.support.patience import patience

HEAVY = {
    "pydantic",
    "yaml",
    "fastapi",
    "sqlalchemy",
    "psycopg",
    "msgspec",
    "numpy",
    "uvicorn",
    "importlib.metadata",
}


def gpuwright(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line as its own process, with an empty config."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GPUWRIGHT_")}
    clean |= {"GPUWRIGHT_CONFIG": "/nonexistent/config.json", "GPUWRIGHT_SERVER": "http://127.0.0.1:1"} | env
    command = [sys.executable, "-m", "cli.main", *words]
    return subprocess.run(command, env=clean, capture_output=True, text=True, timeout=patience())


def loaded(*words: str) -> set[str]:
    """The modules that a command loads."""
    program = "import sys; from cli.main import main; code = main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    env = os.environ | {
        "GPUWRIGHT_SERVER": "http://127.0.0.1:1",
        "GPUWRIGHT_CONFIG": "/nonexistent/config.json",
    }
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=patience())
    return set(done.stderr.splitlines()[-1].split())


def test_help_is_grouped_and_names_every_verb() -> None:
    done = gpuwright("--help")
    assert done.returncode == 0
    assert all(f"\n  {verb.name:<12}{verb.help}\n" in done.stdout for verb in VERBS)
    assert done.stdout.index("Start:") < done.stdout.index("Declare:") < done.stdout.index("Look:")


def test_help_loads_no_verb_and_nothing_heavy() -> None:
    modules = loaded("--help")
    assert not modules & (HEAVY | {"http.client", "app.manifests.kinds"})
    assert not any(name.startswith("cli.verbs.") for name in modules)


def test_get_loads_nothing_heavy() -> None:
    assert not loaded("get", "services") & HEAVY


@pytest.mark.slow
def test_help_looks_the_same_on_a_narrow_terminal() -> None:
    assert gpuwright("get", "--help", COLUMNS="40").stdout == gpuwright("help", "get", COLUMNS="200").stdout


def test_exit_codes_are_documented() -> None:
    done = gpuwright("help", "exit-codes")
    assert done.returncode == 0 and "   4  the server cannot be reached" in done.stdout


def test_the_documentation_has_the_same_verbs_and_exit_codes() -> None:
    text = (Path(__file__).parents[2] / "docs" / "cli.md").read_text()
    assert all(f"| `{verb.name}` | {verb.help} |" in text for verb in VERBS)
    assert all(f"| {code} | {meaning} |" in text for code, meaning in MEANINGS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (
            ["get", "services"],
            4,
            "cannot reach http://127.0.0.1:1: connection refused; start it with: gpuwright up",
        ),
        (["gte"], 2, "unknown verb 'gte'; did you mean get?"),
        (["get", "servces"], 2, "unknown kind 'servces'; did you mean services?"),
        (["get", "pods"], 2, "unknown kind 'pods'"),
        (["wait", "node/n", "node/m", "--for", "delete"], 2, "wait takes one object"),
        (["wait", "node/n", "--for", "delete"], 4, "cannot reach"),
        (["apply", "-f", "/nonexistent.yaml"], 2, "cannot read /nonexistent.yaml: no such file or directory"),
        (["diff", "-f", os.devnull], 2, "cannot reach"),
        (["--context", "x", "get", "nodes"], 2, "context 'x' does not exist"),
        (["wait", "node", "n", "--for", "moon"], 2, "--for 'moon' is not understood"),
        (["get", "node", "a/b"], 2, "have no tenant"),
        (["get", "nodes", "--limit", "3"], 2, "not understood: --limit 3; see: gpuwright get --help"),
        (["get", "services", "-n", "shop"], 2, "a namespace is a tenant here: --tenant NAME; see"),
        (["get", "services", "--sort-by", "cost"], 2, "sort those of -o json"),
        (["get", "nodes", "--tenent=a"], 2, "did you mean --tenant? See: gpuwright get --help"),
        (["describe", "node", "a", "-w"], 2, "changes are shown by: gpuwright watch; see"),
        (["solve", "-f", "a", "--watch"], 2, "not understood: --watch; see: gpuwright solve --help"),
        (["logs", "job", "a", "--filename", "b"], 2, "not understood: --filename b; see: gpuwright logs --help"),
        (["what-if", "--lose", "node-1"], 2, "did you mean --lose-node?"),
        (["what-if", "--without-node", "node-1"], 2, "did you mean --lose-node?"),
        (["plan", "approve", "3", "--mesage", "x"], 2, "did you mean --message?"),
        (["apply", "-f", "https://a.example/b.yaml"], 2, "is a URL, and files are read: curl -fsSL"),
        (["report", "cost", "--from", "yesterday"], 2, "so long ago (1d, 12h), or now"),
        (["token", "create"], 2, "--scope; see: gpuwright token create --help"),
        (["get", "nodes", "-o", "xml"], 2, "'xml' is not known"),
        (["delete"], 2, "nothing to delete was given"),
    ],
)
def test_a_failure_is_one_line_with_the_next_step(words: list[str], code: int, said: str) -> None:
    done = gpuwright(*words)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr.splitlines()[0] and done.stderr.startswith("gpuwright: ")
    assert "\x1b" not in done.stderr


@pytest.mark.slow
def test_flags_of_the_connection_may_come_before_the_verb() -> None:
    assert "http://127.0.0.1:2" in gpuwright("--server", "http://127.0.0.1:2", "get", "nodes").stderr
    assert "http://127.0.0.1:2" in gpuwright("--server=http://127.0.0.1:2", "-v", "get", "nodes").stderr
    assert "http://127.0.0.1:2" in gpuwright("--server", "http://127.0.0.1:2", "plan", "history").stderr


def test_an_extra_that_is_missing_is_named(tmp_path: Path) -> None:
    (tmp_path / "pydantic.py").write_text("raise ModuleNotFoundError('gone', name='pydantic')")
    (tmp_path / "uvicorn.py").write_text("raise ModuleNotFoundError('gone', name='uvicorn')")
    (tmp_path / "a.yaml").write_text("kind: Node\n")
    done = gpuwright("validate", "-f", str(tmp_path / "a.yaml"), PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "gpuwright validate needs the server extra: pip install " in done.stderr and "[server]'" in done.stderr


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_failure_to_report() -> None:
    program = f"{sys.executable} -m cli.main completion bash | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=patience())
    assert done.stderr == "" and done.stdout.splitlines()[0].startswith("# bash completion")
    assert done.stdout.splitlines()[1] in ("0", "141")  # 0 where the pipe took it all


def test_an_ascii_terminal_gets_escapes_not_a_crash() -> None:
    done = gpuwright("get", "sërvices", PYTHONIOENCODING="ascii", PYTHONUTF8="0", LC_ALL="C")
    assert done.returncode == 2 and "Traceback" not in done.stderr


def test_a_full_disk_is_named() -> None:
    program = f"{sys.executable} -m cli.main --help > /dev/full; echo $?"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=patience())
    assert (done.stdout, done.stderr) == ("5\n", "gpuwright: cannot write: no space left on device\n")


def test_a_closed_stdout_is_no_crash() -> None:
    program = f"{sys.executable} -m cli.main --help >&-; echo $? >&2"
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, timeout=patience())
    assert done.stderr == "0\n"
