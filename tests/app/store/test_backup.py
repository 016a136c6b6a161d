"""A backup is one moment of everything, in one file, and comes back as it was or not at all."""

from __future__ import annotations

import gzip
import io
import stat
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from app.store import backup
from app.store.database import schema
from app.store.database.versions import LEAP_BY
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer, GivenDatabase

FILL = """
INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation, resource_version, selectable,
                    created_at, updated_at)
SELECT gen_random_uuid(), 'Model', '', 'model-' || n, '{}', jsonb_build_object('text', E'tab\\t line\\n back\\\\ ☃'),
       '{}', 1, n, ARRAY['a', NULL, 'c,d"'], now(), now() FROM generate_series(1, 500) AS n;
INSERT INTO reference (referrer, kind, tenant, name) SELECT uid, 'GpuType', '', 't4' FROM object;
INSERT INTO audit (request_id, principal, scope, principal_tenant, verb, outcome, kind, name)
SELECT 'r' || n, 'p', 'admin', '', 'put', 'done', 'Model', 'm' FROM generate_series(1, 30) AS n;
CREATE TABLE gpu_minute_20260102 PARTITION OF gpu_minute
FOR VALUES FROM ('2026-01-02T00:00:00Z') TO ('2026-01-03T00:00:00Z');
INSERT INTO gpu_minute SELECT timestamptz '2026-01-02T10:00:00Z' + n * interval '1 minute', 'node-1', 0, n, 'healthy',
       1.5, 2.5, 100, 120, n, 40, 1500, ARRAY['sw_power_cap'] FROM generate_series(1, 200) AS n;
UPDATE version SET value = 500 WHERE name = 'object';
"""
LED = """
INSERT INTO lease (name, holder, epoch, generation, renewed_at, expires_at)
VALUES ('planner', 'a', 3, 40, now(), now());
INSERT INTO assignment (node, epoch, generation, version, body, written_at)
VALUES ('n', 3, 38, 12, '{"node":"n","version":12,"epoch":3,"generation":38,"plan":"p9"}', now());
UPDATE version SET value = 12 WHERE name = 'assignment';
"""


@pytest.mark.slow
def test_everything_comes_back_on_any_postgres(
    each_database: GivenDatabase, postgres: DatabaseServer, tmp_path: Path
) -> None:
    execute(each_database.direct_url, FILL)
    taken = backup.take(each_database.url, tmp_path / "world.tar.gz")
    target = postgres.create()
    restored = backup.restore(target, tmp_path / "world.tar.gz")
    assert restored.tables == taken.tables
    assert restored.rows >= 500 + 500 + 30 + 200
    assert everything(target) == after_a_leap(each_database.direct_url)
    postgres.drop(target)


def after_a_leap(url: str) -> dict[str, list[str]]:
    """What a restore makes of it: the same, but versions that nobody has seen, and older ones forgotten."""
    execute(url, f"UPDATE version SET value = value + {LEAP_BY}, floor = value + {LEAP_BY}")
    return everything(url)


@pytest.mark.slow
def test_after_a_restore_leaders_and_nodes_are_ahead_of_all_that_was_seen_since(
    filled: str, database_url: str, tmp_path: Path
) -> None:
    """An agent refuses an epoch or generation below what it has seen, and asks for another version than it has."""
    execute(filled, LED)
    backup.take(filled, tmp_path / "world.tar.gz")
    backup.restore(database_url, tmp_path / "world.tar.gz")
    backup.leap(filled)  # as after Postgres' own restore to a moment
    for url in (filled, database_url):
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT epoch, generation FROM lease").fetchall() == [(LEAP_BY + 3, LEAP_BY + 40)]
            [(epoch, generation, version, body)] = connection.execute(
                "SELECT epoch, generation, version, body::json FROM assignment"
            ).fetchall()
            assert (epoch, generation, version) == (LEAP_BY + 3, LEAP_BY + 38, LEAP_BY + 12)
            generation_of_plans = "UPDATE version SET value = (SELECT generation + 1 FROM lease) WHERE name = 'plan'"
            connection.execute(generation_of_plans)  # as a plan is recorded; below its floor it would be refused
            assert body == {"node": "n", "epoch": epoch, "generation": generation, "version": version, "plan": "p9"}


@pytest.mark.slow
def test_a_backup_is_its_owners_alone_whatever_lies_where_it_is_written(filled: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "linked.tar.gz.partial").symlink_to(victim)
    (tmp_path / "open.tar.gz.partial").touch(mode=0o666)
    (tmp_path / "open.tar.gz.partial").chmod(0o666)
    for name in ("linked.tar.gz", "open.tar.gz"):
        backup.take(filled, tmp_path / name)
        assert not (tmp_path / name).is_symlink()
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert victim.read_text() == "precious"


@pytest.mark.slow
def test_a_file_is_restored_through_a_pooler_and_on_an_older_postgres(
    each_database: GivenDatabase, filled: str, tmp_path: Path
) -> None:
    backup.take(filled, tmp_path / "world.tar.gz")
    backup.restore(each_database.url, tmp_path / "world.tar.gz")
    assert everything(each_database.direct_url) == after_a_leap(filled)


@pytest.mark.slow
def test_numbers_given_by_the_database_go_on_where_they_were(filled: str, database_url: str, tmp_path: Path) -> None:
    backup.take(filled, tmp_path / "world.tar.gz")
    backup.restore(database_url, tmp_path / "world.tar.gz")
    execute(database_url, FILL.split(";")[2])
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT max(id), count(*) FROM audit").fetchone() == (60, 60)


@pytest.mark.slow
def test_a_backup_is_one_moment_while_others_write(filled: str, database_url: str, tmp_path: Path) -> None:
    """Each transaction adds an object and a reference to it; a backup that cut one would not restore."""
    ending = threading.Event()

    def write() -> None:
        n = 0
        with psycopg.connect(filled) as connection:
            while not ending.is_set():
                n += 1
                connection.execute(
                    "WITH made AS (INSERT INTO object (uid, kind, tenant, name, labels, spec, status, generation,"
                    " resource_version, selectable, created_at, updated_at) VALUES (gen_random_uuid(), 'Job', 'a', %s,"
                    " '{}', '{}', '{}', 1, 1, '{}', now(), now()) RETURNING uid)"
                    " INSERT INTO reference (referrer, kind, tenant, name) SELECT uid, 'Model', '', 'm' FROM made",
                    [f"j{n}"],
                )
                connection.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        contents = backup.take(filled, tmp_path / "world.tar.gz")
    finally:
        ending.set()
        writer.join(patience())
    assert contents.tables["object"].rows == contents.tables["reference"].rows
    backup.restore(database_url, tmp_path / "world.tar.gz")


@pytest.mark.slow
def test_the_file_is_private_and_leaves_no_partial_one(filled: str, tmp_path: Path) -> None:
    backup.take(filled, tmp_path / "world.tar.gz")
    assert [path.name for path in tmp_path.iterdir()] == ["world.tar.gz"]
    assert (tmp_path / "world.tar.gz").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_database_with_rows_is_not_overwritten(filled: str, tmp_path: Path) -> None:
    backup.take(filled, tmp_path / "world.tar.gz")
    before = everything(filled)
    with pytest.raises(backup.BackupError, match=r"not empty: table .* has rows"):
        backup.restore(filled, tmp_path / "world.tar.gz")
    assert everything(filled) == before


@pytest.mark.slow
def test_another_schema_is_refused_with_the_command_to_run(filled: str, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "world.tar.gz"
    backup.take(filled, file)
    rewrite(file, "header.json", lambda content: content.replace(f'"{schema.KNOWN}"'.encode(), b'"0000"', 1))
    with pytest.raises(backup.BackupError, match=r"schema 0000 .*run: gpuwright db migrate"):
        backup.restore(database_url, file)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("member", "change"),
    [
        ("data/object.0", lambda content: content.replace(b"model-7\t", b"model-8x\t")),
        ("data/audit.0", lambda content: content[: content.rindex(b"\n", 0, -1) + 1]),
        ("data/audit.0", lambda content: b"no such row\n"),
        ("manifest.json", lambda content: b"[]"),
        ("header.json", lambda content: b"{"),
    ],
)
def test_a_damaged_file_restores_nothing(
    filled: str, database_url: str, tmp_path: Path, member: str, change: Callable[[bytes], bytes]
) -> None:
    file = tmp_path / "world.tar.gz"
    backup.take(filled, file)
    before = everything(database_url)
    rewrite(file, member, change)
    with pytest.raises(backup.BackupError, match=str(file)):
        backup.restore(database_url, file)
    assert everything(database_url) == before


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.99])
def test_a_file_cut_short_restores_nothing(filled: str, database_url: str, tmp_path: Path, kept: float) -> None:
    file = tmp_path / "world.tar.gz"
    backup.take(filled, file)
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * kept)])
    before = everything(database_url)
    with pytest.raises(backup.BackupError, match="nothing was restored"):
        backup.restore(database_url, file)
    assert everything(database_url) == before


@pytest.mark.slow
def test_names_in_a_hostile_file_reach_no_statement(filled: str, database_url: str, tmp_path: Path) -> None:
    file = tmp_path / "world.tar.gz"
    backup.take(filled, file)
    rewrite(file, "header.json", lambda content: content.replace(b'"audit"', b'"audit; DROP TABLE object"', 1))
    with pytest.raises(backup.BackupError, match="other tables or columns"):
        backup.restore(database_url, file)
    assert everything(database_url)["object"] == []


def test_a_file_that_is_no_backup_is_refused(database_url: str, tmp_path: Path) -> None:
    for name, content in {"text": b"hello", "empty": b"", "gzip": gzip.compress(b"hello")}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(backup.BackupError, match="not a gpuwright backup"):
            backup.restore(database_url, tmp_path / name)


@pytest.fixture
def filled(postgres: DatabaseServer) -> object:
    url = postgres.create()
    execute(url, FILL)
    yield url
    postgres.drop(url)


def execute(url: str, sql: str) -> None:
    with psycopg.connect(url) as connection:
        connection.execute(sql.encode())


def everything(url: str) -> dict[str, list[str]]:
    """Every row of every table, as text."""
    with psycopg.connect(url) as connection:
        connection.execute("SET timezone = 'UTC'")
        tables = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')"
            " AND NOT relispartition"
        ).fetchall()
        return {
            name: [row for (row,) in connection.execute(f'SELECT t::text FROM "{name}" AS t ORDER BY 1'.encode())]
            for (name,) in tables
        }


def rewrite(file: Path, name: str, change: Callable[[bytes], bytes]) -> None:
    """The same archive with one member changed."""
    members: list[tuple[str, bytes]] = []
    with tarfile.open(file) as archive:
        for member in archive:
            content = archive.extractfile(member)
            assert content is not None
            members.append((member.name, content.read()))
    assert name in dict(members)
    with tarfile.open(file, "w:gz") as archive:
        for member_name, content_bytes in members:
            changed = change(content_bytes) if member_name == name else content_bytes
            info = tarfile.TarInfo(member_name)
            info.size = len(changed)
            archive.addfile(info, io.BytesIO(changed))
