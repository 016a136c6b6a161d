"""The agent with only its own extra: no solvers, databases or web frameworks are installed or imported."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.needs import need_no_gpu
from tests.support.patience import patience
from tests.support.wheels import install_wheel
from tests.test_house import run, wheel

__all__ = ["wheel"]  # a fixture

ROOT = Path(__file__).parents[2]
NEVER = (
    "ortools", "cvxpy", "highspy", "pulp", "numpy", "scipy", "numba", "sklearn", "sqlalchemy", "psycopg", "alembic",
    "fastapi", "starlette", "uvicorn", "pydantic", "prometheus_client", "app", "solvers", "benchmarks", "docker",
)  # fmt: skip


def test_the_locked_agent_is_a_handful_of_distributions() -> None:
    text = (ROOT / "requirements" / "agent.txt").read_text()
    assert set(re.findall(r"^([\w.-]+)==", text, re.MULTILINE)) == {"msgspec", "nvidia-ml-py", "pyyaml"}


@pytest.mark.slow
def test_every_module_of_the_agent_is_imported_where_nothing_else_can_be() -> None:
    program = f"""
import importlib, json, pkgutil, sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {NEVER!r}:
            raise ModuleNotFoundError(f"{{name}} is not for an agent")

sys.meta_path.insert(0, Blocked())
import agents
names = [found.name for found in pkgutil.walk_packages(agents.__path__, "agents.")]
for name in names:
    importlib.import_module(name)
print(json.dumps(names))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=patience())
    assert done.returncode == 0, done.stderr
    names = json.loads(done.stdout)
    assert {
        "agents.devices.privileged.server",
        "agents.run.doctor.gpus",
        "agents.prometheus.reading",
        "agents.keeper.keeper",
    } <= set(names)


@pytest.mark.slow
def test_the_doctor_of_a_bare_node_speaks_plainly(tmp_path: Path, wheel: Path) -> None:
    need_no_gpu()
    gpuwright = install_wheel(tmp_path / "venv", wheel, "pyyaml", "msgspec", "nvidia-ml-py")
    speaks_plainly(gpuwright, tmp_path)


@pytest.mark.soak  # installs from a package index
def test_pip_installs_the_agent_into_a_fresh_environment(tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    words = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{ROOT}[agent]"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, cwd="/")
    assert done.returncode == 0, done.stderr
    listed = subprocess.run([python, "-m", "pip", "list", "--format", "json"], capture_output=True, text=True, cwd="/")
    names = {found["name"].lower() for found in json.loads(listed.stdout)}
    assert names - {"pip", "setuptools"} == {"gpuwright", "msgspec", "nvidia-ml-py", "pyyaml"}
    speaks_plainly(python.with_name("gpuwright"), tmp_path)


def speaks_plainly(gpuwright: Path, tmp_path: Path) -> None:
    """A clear statement in the last line, 3 as the exit code, no traceback; the same for a program."""
    done = run(gpuwright, "agent", "doctor", "--state-dir", str(tmp_path / "state"))
    assert done.returncode == 3, done.stdout + done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1].startswith("The driver reaches no NVIDIA GPU here")
    assert "Traceback" not in done.stdout
    json_done = run(gpuwright, "agent", "doctor", "--json", "--state-dir", str(tmp_path / "state"))
    assert json.loads(json_done.stdout)["exitCode"] == json_done.returncode == 3
