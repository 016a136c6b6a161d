"""Fixtures for every test that needs a database or a running server."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from multiprocessing.util import Finalize
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings

from app.embedded import EmbeddedPostgres
from app.store.database import schema
from app.store.database.database import Database
from tests.support import heavy, scratch
from tests.support.needs import need, need_root
from tests.support.postgres import (
    DatabaseServer,
    GivenDatabase,
    at_port,
    pgbouncer,
    postgres_of_debian,
    postgres_of_the_wheel,
)
from tests.support.server import RunningServer, running_server
from tests.support.soak import FAST, SOAK

pytest_plugins = ["tests.support.workers.plugin", "tests.support.meter.plugin"]

PASSED = pytest.StashKey[bool]()
LAST = -1000  # after multiprocessing has removed its own folder in there

# Every day the same examples: a change is judged by what it changed. The soak looks for new ones.
settings.register_profile("everyday", derandomize=True, deadline=None)
settings.register_profile("fast", derandomize=True, deadline=None, max_examples=20)
if not SOAK:
    settings.load_profile("fast" if FAST else "everyday")

# What a shell starts in the background ignores Ctrl-C, and so would everything that we start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """All files of a run in one folder; what failed tests wrote stays until the next run."""
    if config.option.basetemp:
        return
    folder = scratch.in_memory()
    if folder is None:
        return
    config.option.basetemp = str(folder / "t")

    def removed() -> None:
        if config.stash.get(PASSED, True):
            shutil.rmtree(folder, ignore_errors=True)

    Finalize(None, removed, exitpriority=LAST)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[PASSED] = exitstatus == 0


# Hundreds of processes are started here: where no bytecode is kept, each compiles all that it imports, and each run
# all of the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is imported and collected stays for good: no collection of garbage need look through it, now or later.

    A run that measures its tests loads the rest now, before it forks workers, and not in the first test that needs it.
    """
    gc.disable()
    try:
        result = yield
        if session.config.option.meter:
            heavy.load()
        return result
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        need(*mark.args)
    for mark in item.iter_markers("needs_root"):
        need_root(*mark.args)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out whole files of slow tests: to read and import all of them takes a second."""
    if FAST and collection_path.suffix == ".py" and "\npytestmark = pytest.mark.slow\n" in collection_path.read_text():
        return True
    return None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    without = ["slow", "soak"] if FAST else [] if SOAK else ["soak"]
    left_out = {item for item in items if any(item.get_closest_marker(mark) for mark in without)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


KINDS_OF_DATABASE = ["embedded-18", "debian-15", "pgbouncer"]


@pytest.fixture(scope="session")
def postgres() -> Iterator[DatabaseServer]:
    """The wheel's Postgres, one for the whole run."""
    with TemporaryDirectory(prefix="postgres-") as folder, postgres_of_the_wheel(Path(folder)) as server:
        server.answer_before_the_disk()
        server.hash_the_password_once()
        yield server


@pytest.fixture(scope="session")
def debian_postgres() -> Iterator[DatabaseServer]:
    with TemporaryDirectory(prefix="debian-") as folder, postgres_of_debian(Path(folder)) as server:
        server.answer_before_the_disk()
        yield server


@pytest.fixture(scope="session")
def pooler_port(postgres: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with pgbouncer(tmp_path_factory.mktemp("pgbouncer"), postgres.server.url) as port:
        yield port


@pytest.fixture
def postgres_of_its_own(tmp_path: Path) -> Iterator[EmbeddedPostgres]:
    """A server of this test alone, which may be stopped or killed."""
    with EmbeddedPostgres(tmp_path / "data") as server:
        schema.migrate(server.url)
        yield server


@pytest.fixture
def database_url(postgres: DatabaseServer) -> Iterator[str]:
    """A migrated, empty database of this test alone."""
    url = postgres.create()
    yield url
    postgres.drop(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """Connections to it, and to that of `api`."""
    opened = Database(database_url, pool_size=4, direct=True)
    yield opened
    opened.close()


@pytest.fixture
def empty_database_url(postgres: DatabaseServer) -> Iterator[str]:
    """A database without any schema."""
    url = postgres.create_empty()
    yield url
    postgres.drop(url)


def _server_and_port(request: pytest.FixtureRequest, name: str) -> tuple[DatabaseServer, int]:
    """The server meant by a parameter, and the pooler's port in front of it or 0."""
    port: int = request.getfixturevalue("pooler_port") if name == "pgbouncer" else 0
    server: DatabaseServer = request.getfixturevalue("debian_postgres" if name == "debian-15" else "postgres")
    return server, port


@pytest.fixture(params=KINDS_OF_DATABASE)
def each_database(request: pytest.FixtureRequest) -> Iterator[GivenDatabase]:
    """The test runs three times: on the wheel's Postgres, on Debian's 15, and through PgBouncer."""
    server, port = _server_and_port(request, request.param)
    url = server.create()
    yield GivenDatabase(request.param, at_port(url, port) if port else url, url)
    server.drop(url)


@pytest.fixture(params=KINDS_OF_DATABASE)
def each_empty(request: pytest.FixtureRequest) -> Iterator[GivenDatabase]:
    """As each_database, without a schema."""
    server, port = _server_and_port(request, request.param)
    url = server.create_empty()
    yield GivenDatabase(request.param, at_port(url, port) if port else url, url)
    server.drop(url)


@pytest.fixture
def api(database_url: str) -> Iterator[RunningServer]:
    """A server process on a database of this test alone."""
    with running_server(database_url) as server:
        yield server


@pytest.fixture
def cli_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command-line configuration of this test's own, so that no test writes into yours."""
    path = tmp_path / "config.json"
    monkeypatch.setenv("GPUWRIGHT_CONFIG", str(path))
    return path
