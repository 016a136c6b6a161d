"""Agents, servers and planners of the version that landed last work with those of today: a fleet is replaced in parts.

The file `landed` names the commit. Its code comes out of this clone's history, and uses today's libraries.
"""

from __future__ import annotations

import subprocess
import tarfile
import time
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path

import pytest

from tests.proofs.town import SERVICE, agent_words, town
from tests.support.forked import ROOT
from tests.support.load import steady_load
from tests.support.needs import skip_in_ci_too
from tests.support.patience import until
from tests.support.postgres import DatabaseServer

LANDED = (Path(__file__).parent / "landed").read_text().strip()
PARTS = ("agents", "app", "cli", "examples", "migrations", "simulation", "solvers")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of that commit."""
    archived = subprocess.run(["git", "archive", LANDED, *PARTS], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        skip_in_ci_too("the commit that landed last is not in this clone's history")
    folder = tmp_path_factory.mktemp("landed")
    with tarfile.open(fileobj=BytesIO(archived.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder


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
