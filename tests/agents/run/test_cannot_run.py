"""`gpuwright agent run` reports in one line what it cannot run with, before anything is started or changed."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest

from agents.devices.simulated.remote import Switches
from agents.http.pages import serve
from agents.keeper.routing import GatewayRoutes
from agents.node.state_folder import Credential, StateFolder
from agents.run.opening import NoGateway
from agents.seams.routes import Acknowledged, Route, RoutesAway
from agents.templates.reading import MODELS, read_usable
from tests.support.needs import skip_unless_ci
from tests.support.patience import patience
from tests.support.server import RunningServer

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Of a node that joined a control plane which is away."""
    StateFolder(tmp_path / "a").keep_credential(Credential("http://127.0.0.1:9", "node-1", "token"))
    yield tmp_path / "a"
    if (tmp_path / "a" / "simulated" / "driver.sock").exists():
        switches = Switches(tmp_path / "a" / "simulated")
        switches.quit()


def refused(folder: Path, *words: str) -> str:
    """The message that is printed instead of running."""
    command = [sys.executable, "-m", "cli.main", "agent", "run", "--device", "simulated", "--state-dir", str(folder)]
    ran = subprocess.run([*command, *words], cwd=ROOT, capture_output=True, text=True, timeout=patience())
    assert ran.returncode == 2, ran.stderr
    assert ran.stderr.count("\n") == 1, "one line, and nothing was begun"
    return ran.stderr


@pytest.mark.slow
def test_an_address_for_metrics_that_cannot_be_had_stops_it_before_it_begins(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert "in use" in refused(folder, "--metrics", f"127.0.0.1:{taken.getsockname()[1]}")
    assert "must be HOST:PORT" in refused(folder, "--metrics", "nonsense")
    assert "--metrics :99999" in refused(folder, "--metrics", ":99999")


@pytest.mark.slow
def test_an_address_for_copies_that_is_not_of_this_machine_is_refused(folder: Path) -> None:
    assert "no free port on 192.0.2.1" in refused(folder, "--host", "192.0.2.1")


@pytest.mark.slow
def test_a_gateway_that_no_address_names_is_refused(folder: Path) -> None:
    assert "--gateway proxy:9444 must be like" in refused(folder, "--gateway", "proxy:9444")


@pytest.mark.slow
def test_a_gateway_elsewhere_needs_an_address_of_this_node(folder: Path) -> None:
    error_text = refused(folder, "--gateway", "https://proxy.example:9444")
    assert "cannot reach copies at 127.0.0.1; set --host to an address of this node" in error_text


def test_a_template_with_a_fault_is_not_offered_and_takes_no_other_along(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "gpuwright-serve.yaml").write_text("argv: 7\n")
    templates, (fault,) = read_usable(own, MODELS)
    assert "gpuwright-serve.yaml" in fault
    assert "gpuwright-serve" not in templates, "what was to be overridden is not what was asked for"
    assert "gpuwright-train" in templates


@pytest.mark.slow
@pytest.mark.parametrize("name", ["credential.json", "memory.json", "devices.json", "health.json"])
def test_a_garbled_file_of_its_own_is_reported(folder: Path, name: str) -> None:
    (folder / name).write_text('{"node": ')
    error_text = refused(folder)
    assert name in error_text
    assert "cannot be read" in error_text


def test_metrics_are_served_on_ipv6() -> None:
    if not socket.has_dualstack_ipv6():
        skip_unless_ci("this machine has no IPv6")
    answering = serve(("::1", 0), {"/metrics": lambda: b"up 1\n"})
    with urlopen(f"http://[::1]:{answering.port}/metrics", timeout=patience()) as page:
        assert page.read() == b"up 1\n"
    answering.close()


@pytest.mark.slow
def test_a_join_that_is_refused_names_the_fault(api: RunningServer, tmp_path: Path) -> None:
    token = api.request("POST", "/api/v1/jointokens", {"node": "node-1"}).json["token"]
    words = ["--server", api.url, "--node", "node-1", "--gpu-type", "no-such", "--gpus", "2"]
    command = [sys.executable, "-m", "cli.main", "agent", "join", *words, "--state-dir", str(tmp_path)]
    environment = {**os.environ, "GPUWRIGHT_JOIN_TOKEN": token}
    joined = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=patience())
    assert joined.returncode == 3
    assert "no-such" in joined.stderr


class _Flapping(NoGateway):
    def __init__(self) -> None:
        self.away = True

    def declare(self, routes: object) -> Acknowledged:
        if self.away:
            raise RoutesAway("nobody listens")
        return super().declare(())


def test_a_gateway_that_is_away_is_logged_once_and_so_is_its_return(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    gateway, seconds = _Flapping(), iter(range(0, 1000, 10))
    board = GatewayRoutes(gateway, lambda: next(seconds))
    route = (Route("a.1.1", "shop/a", "127.0.0.1:1", 1.0, drained=False),)
    for _ in range(5):
        board.bring_up_to_date(route)
    gateway.away = False
    for _ in range(5):
        board.bring_up_to_date(route)
    messages = [record.getMessage() for record in caplog.records]
    assert [line.partition(",")[0].partition(":")[0] for line in messages] == [
        "the gateway does not acknowledge routes",
        "the gateway acknowledges routes again",
    ]
