"""Agents, servers and planners of the version that landed last work with those of today: a fleet is replaced in parts.

The file `landed` names the commit. Its wheel is built from this clone's history, and uses the libraries of today.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tarfile
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest

from tests.proofs.town import SERVICE, agent_words, town
from tests.support.forked import ROOT, python_of
from tests.support.load import steady_load
from tests.support.needs import skip_in_ci_too
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.test_house import build_wheel, installed

LANDED = (Path(__file__).parent / "landed").read_text().strip()
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel of that commit; of today's it has what the product needs, not the product."""
    archived = subprocess.run(["git", "archive", LANDED], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        skip_in_ci_too("the commit that landed last is not in this clone's history")
    folder = tmp_path_factory.mktemp("landed")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as files:
        files.extractall(folder / "code", filter="data")
    environment = folder / "environment"
    installed(environment, build_wheel(folder / "code", folder / "wheel"))
    packages = next(environment.glob("lib/python*/site-packages"))
    packages.joinpath("libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def test_the_environment_of_the_older_version_has_nothing_of_todays(landed: Path) -> None:
    names = ("agents", "app", "cli", "migrations", "simulation", "solvers")
    program = f"import importlib\nfor name in {names}: print(importlib.import_module(name).__path__[0])"
    done = subprocess.run([python_of(landed), "-c", program], cwd=landed, capture_output=True, text=True, check=True)
    assert [Path(line).is_relative_to(landed) for line in done.stdout.split()] == [True] * len(names)


@pytest.mark.parametrize("older", [("agent",), ("agent", "server", "planner")], ids="-".join)
def test_older_parts_serve_with_newer_ones_and_come_back(
    postgres: DatabaseServer, database_url: str, landed: Path, tmp_path: Path, older: tuple[str, ...]
) -> None:
    codes: Mapping[str, Path] = dict.fromkeys(older, landed)
    direct = {"GPUWRIGHT_DATABASE_DIRECT": "1"}
    with town(database_url, database_url, tmp_path, 2, direct, codes) as made:
        path = f"/shop/{SERVICE}/v1/models/stub:infer"
        with steady_load(made.gateway.port, path, rate_per_second=20, method="POST", body="{}") as load:
            agent = made.agents[0]
            agent.end()
            agent.start(*agent_words(made.gateway))
            until(made.served, f"not served again, see {tmp_path}")
            time.sleep(1)  # requests go on
            assert load.stop().failed == ()
