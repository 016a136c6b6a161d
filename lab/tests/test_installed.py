"""The lab as a wheel: what it holds, and that the product finds it where both are installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest

from cli.verbs.bench import OF_THE_LAB
from lab.bench import BENCHMARKS

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


def build(project: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return [build(project, tmp_path_factory.mktemp("wheel")) for project in (ROOT, ROOT / "lab")]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, wheels: list[Path]) -> Path:
    """`gpuwright` of an environment with both wheels and PyYAML."""
    folder = tmp_path_factory.mktemp("both")
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-index", "--no-deps", *map(str, wheels)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    packages = next(folder.glob("lib/python*/site-packages"))
    for file in distribution("pyyaml").files or ():
        if ".." not in file.parts:
            (packages / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(str(file.locate()), packages / file)
    return folder / "bin" / "gpuwright"


def run(program: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent"}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment, cwd="/")


def test_a_wheel_holds_the_testbeds_and_no_tests(wheels: list[Path]) -> None:
    names = zipfile.ZipFile(wheels[1]).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"lab"}
    assert not [name for name in names if name.startswith("lab/tests/")]
    testbeds = sorted(path.name for path in (ROOT / "lab" / "testbeds").iterdir())
    assert sorted(name.split("/")[-1] for name in names if name.startswith("lab/testbeds/")) == testbeds


def test_the_product_finds_evaluate_and_every_benchmark(program: Path) -> None:
    assert "usage: gpuwright evaluate" in run(program, "evaluate", "hetsev", "--help").stdout
    listed = run(program, "bench", "--help")
    assert listed.returncode == 0, listed.stderr
    assert all(f"\n    {name} " in listed.stdout for name in BENCHMARKS)
    assert "usage: gpuwright bench place" in run(program, "bench", "place", "--help").stdout


def test_where_the_lab_is_missing_the_product_knows_what_it_would_bring() -> None:
    assert tuple(BENCHMARKS) == OF_THE_LAB
