"""The bare install: Python, our package and PyYAML, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import WORLD, service
from tests.support.patience import patience
from tests.support.server import RunningServer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROGRAM = "import sys; sys.path[:0] = {paths!r}; from cli.main import main; sys.exit(main({words!r}))"
EVERY_HELP = """import sys
sys.path[:0] = {paths!r}
from cli.main import main
from cli.verb_table import OF_THE_LAB, VERBS
for verb in VERBS:
    if verb.module != OF_THE_LAB:
        try:
            code = main([verb.name, "--help"])
        except SystemExit as ended:
            code = ended.code
        if code:
            print("no help of", verb.name, file=sys.stderr)
"""


def bare(folder: Path, *words: str, program: str = PROGRAM, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command line without any site-packages but PyYAML."""
    library = folder / "library"
    if not library.exists():
        library.mkdir()
        installed = Path(yaml.__file__).parent
        for name in ("yaml", "_yaml"):
            (library / name).symlink_to(installed.parent / name)
        for name in ("app", "agents", "benchmarks", "cli", "clusters", "migrations", "simulation", "solvers"):
            (library / name).symlink_to(ROOT / name)
    program = program.format(paths=[str(library)], words=list(words))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("GPUWRIGHT_", "PYTHON"))}
    clean["GPUWRIGHT_CONFIG"] = str(folder / "config.json")
    command = [sys.executable, "-I", "-S", "-c", program]
    return subprocess.run(command, env=clean | env, capture_output=True, text=True, timeout=patience(), cwd=folder)


def test_the_client_needs_nothing_but_yaml(server: RunningServer, tmp_path: Path) -> None:
    env = {"GPUWRIGHT_SERVER": server.url, "GPUWRIGHT_TOKEN": server.admin_token, "EDITOR": "true"}
    file = tmp_path / "world.yaml"
    file.write_text(WORLD + service("bare"))
    for words in (
        ["apply", "-f", str(file)],
        ["diff", "-f", str(file)],
        ["get", "all", "-o", "wide"],
        ["get", "all", "-o", "yaml"],
        ["get", "all", "-o", "json"],
        ["describe", "service", "shop/bare"],
        ["wait", "service", "shop/bare", "--for", "spec.priority=100", "--timeout", "1s"],
        ["edit", "service", "shop/bare"],
        ["token", "create", "--scope", "viewer"],
        ["token", "list"],
        ["whoami"],
        ["version"],
        ["catalogue", "list"],
        ["completion", "bash"],
        ["assess", "--demo"],
        ["assess", "--demo", "--backtest", "7d"],
        ["assess", "--demo", "-o", "yaml"],
        ["delete", "-f", str(file), "--yes"],
    ):
        done = bare(tmp_path, *words, **env)
        assert (done.returncode, "Error" in done.stderr) == (1 if words[0] == "wait" else 0, False), done.stderr


def test_each_verb_tells_its_help(tmp_path: Path) -> None:
    done = bare(tmp_path, program=EVERY_HELP)
    assert (done.stderr, done.returncode) == ("", 0)
    assert done.stdout.count("usage: gpuwright") > 40


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve"], "server"),
        (["up"], "server"),
        (["db", "check"], "server"),
        (["validate", "-f", os.devnull], "server"),
        (["bench", "api"], "server"),
        (["agent", "run"], "agent"),
        (["assess"], "kubernetes"),
    ],
)
def test_what_needs_an_extra_names_it(tmp_path: Path, words: list[str], extra: str) -> None:
    done = bare(tmp_path, *words)
    assert done.returncode == 2
    assert f"gpuwright {words[0]} needs the {extra} extra: pip install '.[{extra}]'" in done.stderr
