"""Over one migration and back while requests go on: two servers behind HAProxy, replaced one after the other."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from app.store.database import schema
from tests.support.forked import ROOT
from tests.support.haproxy import PROGRAM
from tests.support.needs import need
from tests.support.patience import patience, until
from tests.support.ports import free_port
from tests.support.server import RunningServer, running_server
from tests.support.soak import scaled

pytestmark = pytest.mark.slow

CONFIG = ROOT / "deploy" / "haproxy" / "api.cfg"
NEXT = "9000"
MIGRATION = f'''"""The next version: a table and a column that this one knows nothing of."""

from alembic import op

revision = "{NEXT}"
down_revision = "{schema.KNOWN}"
branch_labels = None
depends_on = None
SERVES = "{{serves}}"


def upgrade() -> None:
    op.execute("CREATE TABLE of_the_next_version (id bigint PRIMARY KEY)")
    op.execute("ALTER TABLE object ADD COLUMN of_the_next_version text NOT NULL DEFAULT ''")


def downgrade() -> None:
    op.execute("ALTER TABLE object DROP COLUMN of_the_next_version")
    op.execute("DROP TABLE of_the_next_version")
'''


def next_version(folder: Path, serves: str = schema.KNOWN) -> Path:
    """This gpuwright and one migration more, installed beside it."""
    for name in ("app", "agents", "cli", "simulation", "solvers"):
        (folder / name).symlink_to(ROOT / name)
    versions = folder / "migrations" / "versions"
    versions.mkdir(parents=True)
    for source in (ROOT / "migrations").rglob("*.py"):
        ours = folder / source.relative_to(ROOT)
        ours.parent.mkdir(parents=True, exist_ok=True)
        ours.symlink_to(source)
    (versions / f"{NEXT}_next.py").write_text(MIGRATION.format(serves=serves))
    return folder


def gpuwright(code: Path, *words: str, database_url: str) -> subprocess.CompletedProcess[str]:
    """A command of that version."""
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *words], cwd=code, capture_output=True, text=True, timeout=patience(),
        env={"DATABASE_URL": database_url, "PATH": "/usr/bin:/bin"},
    )  # fmt: skip


@contextmanager
def in_front_of(servers: list[RunningServer], folder: Path) -> Iterator[int]:
    """The shipped HAProxy in front of them, without TLS and on loopback; its port."""
    need(PROGRAM, "haproxy")
    port = free_port()
    text = CONFIG.read_text().replace("    user haproxy\n    group haproxy\n", "")
    text = text.replace("bind :443 ssl crt /etc/haproxy/certs/ alpn http/1.1", f"bind 127.0.0.1:{port}")
    for server, address in zip(servers, ("10.0.0.1:8443", "10.0.0.2:8443"), strict=True):
        tls = "ssl verify required ca-file /etc/gpuwright/ca.pem"
        assert f"{address} {tls}" in text
        text = text.replace(f"{address} {tls}", f"127.0.0.1:{server.port}")
    (folder / "api.cfg").write_text(text)
    process = subprocess.Popen([str(PROGRAM), "-W", "-f", str(folder / "api.cfg")], stderr=subprocess.DEVNULL)
    try:
        until(lambda: ask(port, "GET", "/readyz")[0] == 200, "haproxy finds no server")
        yield port
    finally:
        process.terminate()
        process.wait(patience())


def ask(port: int, method: str, path: str, body: object = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=patience())
    try:
        connection.request(method, path, json.dumps(body), {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, http.client.HTTPException) as error:
        return 0, repr(error)
    finally:
        connection.close()


class Writer(threading.Thread):
    """Creates one tenant after the other through the proxy, each until it is acknowledged, as the command line does."""

    def __init__(self, port: int, token: str) -> None:
        super().__init__(daemon=True)  # it keeps no worker that a failed test leaves
        self.port, self.token = port, token
        self.acknowledged: list[str] = []
        self.again: list[tuple[int, str]] = []
        self.refused: list[tuple[int, str]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        while not self.ending.is_set():
            name = f"t{len(self.acknowledged)}"
            body = {"apiVersion": "gpuwright/v1", "kind": "Tenant", "metadata": {"name": name}, "spec": {}}
            while True:
                status, text = ask(
                    self.port, "PUT", f"/api/v1/tenants/{name}", body,
                    Authorization=f"Bearer {self.token}", **{"Idempotency-Key": f"key-{name}"},
                )  # fmt: skip
                if status in (200, 201):
                    break
                (self.again if status in (0, 429, 502, 503) else self.refused).append((status, text))
                self.ending.wait(0.05)
                if self.refused:
                    return
            self.acknowledged.append(name)
            self.ending.wait(0.02)


def test_two_servers_go_over_a_migration_and_back_under_writes_that_are_all_kept(
    database_url: str, tmp_path: Path
) -> None:
    newer = next_version(tmp_path)
    limits = {"GPUWRIGHT_RATE_PER_SECOND": "1000", "GPUWRIGHT_RATE_BURST": "1000"}
    with (
        running_server(database_url, **limits) as one,
        running_server(database_url, **limits) as two,
        in_front_of([one, two], tmp_path) as port,
    ):
        writer = Writer(port, one.admin_token)
        writer.start()

        def replaced(code: Path) -> None:
            for server in (one, two)[: scaled(2, 1)]:
                server.stop()
                server.code = code
                server.restart()
                more = len(writer.acknowledged) + 5
                until(lambda: bool(len(writer.acknowledged) >= more or writer.refused), "nothing is written")  # noqa: B023

        moved = gpuwright(newer, "db", "migrate", database_url=database_url)
        assert f"migrated through {NEXT}" in moved.stdout, moved.stderr
        assert [server.request("GET", "/readyz").status for server in (one, two)] == [200, 200], "the old ones serve on"
        replaced(newer)
        assert one.request("GET", "/readyz").json["schema"] == NEXT
        replaced(ROOT)
        back = gpuwright(newer, "db", "migrate", "--to", schema.KNOWN, "--drop-data", database_url=database_url)
        assert back.returncode == 0, back.stderr
        more = len(writer.acknowledged) + 5
        until(lambda: bool(len(writer.acknowledged) >= more or writer.refused), "nothing is written after the way back")
        writer.ending.set()
        writer.join(patience())
        assert writer.refused == []
        assert {status for status, _ in writer.again} <= {0, 502, 503}
        with psycopg.connect(database_url) as connection:
            kept = {name for (name,) in connection.execute("SELECT name FROM object WHERE kind = 'Tenant'")}
        assert set(writer.acknowledged) <= kept


def test_a_migration_that_does_not_serve_this_version_takes_its_servers_out(database_url: str, tmp_path: Path) -> None:
    newer = next_version(tmp_path, serves=NEXT)
    with running_server(database_url) as server:
        gpuwright(newer, "db", "migrate", database_url=database_url)
        away = server.request("GET", "/readyz")
        assert away.status == 503
        assert f"{NEXT}, unknown to this gpuwright" in away.json["detail"]
    refused = gpuwright(ROOT, "serve", database_url=database_url)
    assert refused.returncode == 3


def test_a_check_tells_of_a_newer_schema_that_serves_and_a_backup_refuses_it(database_url: str, tmp_path: Path) -> None:
    newer = next_version(tmp_path)
    gpuwright(newer, "db", "migrate", database_url=database_url)
    checked = gpuwright(ROOT, "db", "check", database_url=database_url)
    assert (
        f"newer than this gpuwright, which knows {schema.KNOWN}; it serves {schema.KNOWN} and later" in checked.stdout
    )
    kept = gpuwright(ROOT, "db", "backup", str(tmp_path / "world.tar.gz"), database_url=database_url)
    assert f"{NEXT}, unknown to this gpuwright" in kept.stderr


@pytest.mark.parametrize("serves", ["9001", "none"])
def test_a_migration_serves_nobody_who_is_newer_than_itself(database_url: str, tmp_path: Path, serves: str) -> None:
    refused = gpuwright(next_version(tmp_path, serves), "db", "migrate", database_url=database_url)
    assert f"migration {NEXT} says SERVES = '{serves}'" in refused.stderr
