"""`gpuwright up`: starts, says where it is, ends without a trace, and comes back with the data."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from agents.runtime import proc
from app.embedded import LOG_BYTES
from app.postgres.leftover import servers_on
from tests.support.forked import ROOT, Forked, gpuwright
from tests.support.patience import patience, until
from tests.support.ports import free_port
from tests.support.postgres import DatabaseServer


class Up:
    """A running `gpuwright up`."""

    def __init__(self, data: Path, config: Path, *arguments: str, **environment: str) -> None:
        self.data = data
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.screen = data.parent / "screen.txt"
        self.errors = data.parent / "errors.txt"
        variables = {**os.environ, "GPUWRIGHT_CONFIG": str(config), **environment}
        self.screen.write_text("")
        self.errors.write_text("")
        words = ["up", "--empty", "--data-dir", str(data), "--port", str(self.port), *arguments]
        self.process = Forked(words, ROOT, variables, self.screen, self.errors)

    def await_ready(self) -> None:
        until(lambda: "Ctrl-C" in self.screen.read_text() or self.process.poll() is not None, self.screen.read_text)
        assert self.process.poll() is None, self.errors.read_text()

    def get(self, path: str) -> Any:
        return self.send("GET", path)

    def send(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(self.url + path, method=method)
        request.add_header("Authorization", f"Bearer {(self.data / 'admin.token').read_text().strip()}")
        request.add_header("Content-Type", "application/json")
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(request, content, timeout=patience()) as answer:
            return json.loads(answer.read())

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(patience())


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return tmp_path / "config.json"


@contextmanager
def up(data: Path, config: Path, *arguments: str, **environment: str) -> Iterator[Up]:
    running = Up(data, config, *arguments, **environment)
    try:
        running.await_ready()
        yield running
    finally:
        running.process.kill()
        running.process.wait()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for the tests that only look at it."""
    folder = tmp_path_factory.mktemp("shared")
    with up(folder / "data", folder / "config.json") as running:
        yield running


@pytest.mark.slow
def test_what_was_declared_is_there_after_ctrl_c_and_another_start(tmp_path: Path, config: Path) -> None:
    data = tmp_path / "data"
    with up(data, config) as first:
        token = (data / "admin.token").read_text().strip()
        assert token in first.screen.read_text()
        assert (data / "admin.token").stat().st_mode & 0o777 == 0o600
        (link,) = re.findall(r"console +(http://\S+/sign-in\?link=gwl_\S+)", first.screen.read_text())
        address, _, pressed = link.partition("?")
        with urllib.request.urlopen(address, pressed.encode(), timeout=patience()) as opened:
            assert opened.status == 200
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(address, pressed.encode(), timeout=patience())
        first.send("PUT", "/api/v1/tenants/shop", {"spec": {}})
        assert first.end(signal.SIGINT) == 0
        assert "the data is safe" in first.errors.read_text()
        assert servers_on(data / "postgres") == []
    with up(data, config) as second:
        assert token not in second.screen.read_text() + second.errors.read_text()
        assert (data / "admin.token").read_text().strip() == token
        assert second.get("/api/v1/tenants/shop")["metadata"]["name"] == "shop"
        assert second.end(signal.SIGTERM) == 0
        assert servers_on(data / "postgres") == []
    with up(data, config) as third:
        assert third.end(signal.SIGHUP) == 0, "a closed terminal"
        assert servers_on(data / "postgres") == []


@pytest.mark.slow
def test_outside_a_terminal_it_prints_the_screen_and_each_stage_and_logs_to_its_file(shared: Up) -> None:
    log = shared.data / "server.log"
    assert re.search(rf"^  log +{re.escape(str(log))}$", shared.screen.read_text(), re.MULTILINE)
    assert shared.errors.read_text().splitlines() == [
        f"starting Postgres in {shared.data}",
        "preparing the database",
        "starting the server",
    ]
    assert "listening" in {json.loads(line)["event"] for line in log.read_text().splitlines()}
    assert log.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_log_that_has_grown_large_is_set_aside_at_the_next_start(tmp_path: Path, config: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "server.log").write_bytes(bytes(LOG_BYTES + 1))
    with up(data, config):
        assert (data / "server.log.1").stat().st_size > LOG_BYTES
        assert "listening" in (data / "server.log").read_text()


@pytest.mark.slow
def test_ended_before_it_is_ready_it_leaves_no_server(tmp_path: Path, config: Path) -> None:
    data = tmp_path / "data"
    for number in (signal.SIGINT, signal.SIGTERM):
        starting = Up(data, config)
        while not (data / "postgres/postmaster.pid").exists():
            assert starting.process.poll() is None
            time.sleep(0.01)
        assert starting.end(number) in (0, 130)
        assert servers_on(data / "postgres") == []
        if number == signal.SIGINT:
            assert f"stopped while starting; nothing runs any more, and the next start on {data}" in (
                starting.errors.read_text()
            )


def are_gone(pids: Collection[int]) -> bool:
    found = [proc.read_process(pid) for pid in pids]
    return all(process is None or process.zombie for process in found)


@pytest.mark.slow
def test_after_sigkill_the_next_start_finds_everything_and_no_obstacle(tmp_path: Path, config: Path) -> None:
    data = tmp_path / "data"
    for n in range(2):
        with up(data, config) as running:
            running.send("PUT", f"/api/v1/tenants/t{n}", {"spec": {}})
            started = proc.descendants(running.process.pid) - {running.process.pid}
            running.end(signal.SIGKILL)
        until(partial(are_gone, started), "planner, solver and database end with it")
    with up(data, config) as running:
        names = [item["metadata"]["name"] for item in running.get("/api/v1/tenants")["items"]]
    assert names == ["t0", "t1"]


@pytest.mark.slow
def test_the_command_line_finds_it_from_any_folder(shared: Up, tmp_path: Path) -> None:
    config = shared.data.parent / "config.json"
    ran = run("get", "services", config=config, folder=tmp_path)
    assert ran.returncode == 0, ran.stderr
    written = json.loads(config.read_text())
    assert written["current"] == "data"
    assert written["contexts"]["data"]["server"] == shared.url
    assert config.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_request_without_a_token_is_401_with_problem_json(shared: Up) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"{shared.url}/api/v1/services", timeout=patience())
    assert refused.value.code == 401
    assert refused.value.headers["Content-Type"] == "application/problem+json"


def test_a_world_of_cores_is_not_empty(config: Path, tmp_path: Path) -> None:
    done = run("up", "--empty", "--cores", "1", "--data-dir", str(tmp_path / "data"), config=config)
    assert done.returncode == 2 and "use one of them" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_a_fleet_of_language_models_is_declared_as_it_is(config: Path, tmp_path: Path) -> None:
    for other in (("--gpus", "8"), ("--empty",), ("--truth", "made")):
        done = run("up", "--llm", *other, "--data-dir", str(tmp_path / "data"), config=config)
        assert done.returncode == 2 and f"without {other[0]}" in done.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_two_on_one_folder_are_refused_in_one_line(shared: Up, config: Path) -> None:
    ran = run("up", "--data-dir", str(shared.data), "--port", "0", config=config)
    assert ran.returncode == 2
    assert ran.stderr.count("\n") == 1
    assert f"{shared.data} is in use by another gpuwright" in ran.stderr


@pytest.mark.slow
def test_a_taken_port_is_reported_in_a_single_line_and_leaves_no_server(
    shared: Up, tmp_path: Path, config: Path
) -> None:
    ran = run("up", "--data-dir", str(tmp_path / "two"), "--port", str(shared.port), config=config)
    assert ran.returncode == 2
    assert f"port {shared.port}" in ran.stderr.splitlines()[-1]
    assert not (tmp_path / "two").exists()


@pytest.mark.slow
def test_a_deleted_token_file_is_made_again_and_shown(tmp_path: Path, config: Path) -> None:
    data = tmp_path / "data"
    with up(data, config) as running:
        running.end(signal.SIGINT)
    (data / "admin.token").unlink()
    with up(data, config) as running:
        assert (data / "admin.token").read_text().strip() in running.screen.read_text()
        running.get("/api/v1/services")


@pytest.mark.slow
def test_database_url_takes_the_place_of_our_own_postgres(
    tmp_path: Path, config: Path, postgres: DatabaseServer
) -> None:
    url = postgres.create_empty()
    data = tmp_path / "data"
    with up(data, config, DATABASE_URL=url) as running:
        assert running.get("/api/v1/tenants")["items"] == []
        assert not (data / "postgres").exists()
        assert running.end(signal.SIGINT) == 0
    postgres.drop(url)


def test_beyond_this_machine_it_wants_tls_or_an_explicit_word(tmp_path: Path, config: Path) -> None:
    ran = run("up", "--data-dir", str(tmp_path / "data"), "--host", "0.0.0.0", config=config)
    assert ran.returncode == 2
    assert "TLS" in ran.stderr
    assert not (tmp_path / "data").exists()


@pytest.mark.slow
def test_postgres_killed_under_it_comes_back_unaided(tmp_path: Path, config: Path) -> None:
    data = tmp_path / "data"
    with up(data, config) as running:
        running.send("PUT", "/api/v1/tenants/shop", {"spec": {}})
        for pid in servers_on(data / "postgres"):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue

        def answers() -> bool:
            try:
                assert running.get("/api/v1/tenants/shop")["metadata"]["name"] == "shop"
            except urllib.error.HTTPError as error:
                assert error.code == 503
                return False
            return True

        until(answers, "the database is back")


def run(*words: str, config: Path, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "GPUWRIGHT_CONFIG": str(config)}
    for name in ("DATABASE_URL", "GPUWRIGHT_SERVER", "GPUWRIGHT_TOKEN"):
        variables.pop(name, None)
    return gpuwright(*words, environment=variables, folder=folder)


@pytest.mark.slow
def test_the_planner_of_an_empty_world_says_what_it_lacks(shared: Up) -> None:
    config, file = shared.data.parent / "config.json", ROOT / "examples/quickstart.yaml"
    applied = run("apply", "-f", str(file), config=config)
    assert applied.returncode == 0, applied.stderr

    def told() -> str:
        return run("explain", "plan", config=config).stderr

    until(lambda: "none of the 4 nodes reports" in told(), told)
    assert "gpuwright agent join" in told()


@pytest.mark.slow
def test_its_context_ends_with_it(tmp_path: Path, config: Path) -> None:
    with up(tmp_path / "own fleet", config) as running:
        assert json.loads(config.read_text())["current"] == "own-fleet"
        running.end(signal.SIGINT)
    assert json.loads(config.read_text()) == {"current": "", "contexts": {}}
