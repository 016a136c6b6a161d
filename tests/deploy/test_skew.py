"""Agents, servers and planners of the version that landed last work with those of today: a fleet is replaced in parts.

The file `landed` names the commit. Its wheel is built from this clone's history, and uses the libraries of today.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tarfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from tests.proofs.town import SERVICE, agent_words, town
from tests.support.forked import ROOT, find_python
from tests.support.haproxy import Gateway, get, insist, running_copies
from tests.support.load import steady_load
from tests.support.needs import skip_in_ci_too
from tests.support.patience import until
from tests.support.postgres import DatabaseServer
from tests.support.wheels import build_wheel, install_wheel

LANDED = (Path(__file__).parent / "landed").read_text().strip()
MORE_ANSWERS = 20  # requests go on
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
    install_wheel(environment, build_wheel(folder / "code", folder / "wheel"))
    packages = next(environment.glob("lib/python*/site-packages"))
    packages.joinpath("libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment


def test_the_environment_of_the_older_version_has_nothing_of_todays(landed: Path) -> None:
    names = ("agents", "app", "cli", "migrations", "simulation", "solvers")
    program = f"import importlib\nfor name in {names}: print(importlib.import_module(name).__path__[0])"
    done = subprocess.run([find_python(landed), "-c", program], cwd=landed, capture_output=True, text=True, check=True)
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
            load.await_answers(MORE_ANSWERS)
            assert load.stop().failed == ()


@pytest.mark.parametrize("newer_first", [True, False], ids=["back", "forth"])
def test_a_sidecar_of_another_version_takes_over_without_a_lost_request(
    landed: Path, tmp_path: Path, newer_first: bool
) -> None:
    """It does not find its own map in HAProxy, writes its own files, and reloads HAProxy once."""
    first, second = (ROOT, landed) if newer_first else (landed, ROOT)
    gateway = Gateway(tmp_path / "gateway")
    with closing(gateway), running_copies(2) as copies:
        gateway.start_sidecar(code=first)
        gateway.start_haproxy()
        gateway.await_sidecar()
        before = copies.route(0)
        insist(gateway.routes(), [before])
        with steady_load(gateway.port, f"/{before.service}/x", rate_per_second=50) as load:
            gateway.kill_sidecar()
            gateway.start_sidecar(code=second)
            gateway.await_sidecar()
            after = replace(copies.route(1), paths=("GET /x", "GET /y"))
            other = replace(after, copy="other", service="shop/other")
            routes = gateway.routes()
            insist(routes, [before, after, other])
            insist(routes, [replace(before, drained=True), after, other])
            load.await_answers(MORE_ANSWERS)
            assert load.stop().failed == ()
        for path, status in (("search/y", 200), ("search/z", 404), ("other/x", 200), ("other/z", 404)):
            assert get(gateway, f"/shop/{path}")[0] == status, path
