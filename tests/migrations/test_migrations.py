"""Migrations go forward and back, survive being killed at every statement, and take turns."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory

from app.postgres.binaries import find_installed
from app.store.database import schema
from app.store.database.database import Database, statement
from tests.migrations.longer import lengthen
from tests.support.patience import patience
from tests.support.postgres import DatabaseServer, GivenDatabase
from tests.support.soak import scaled

# For each target of a longer chain (its revisions are in the folder): children that end themselves with SIGKILL before
# the k-th statement or COMMIT they send, for k = 1, 2, ... (or each third of them) until one gets through; after each,
# where the database stands.
DIES = """
import os, signal, sys
from itertools import count
from pathlib import Path
from sqlalchemy import event, Engine
from alembic import command
from app.store.database import schema
from app.store.database.database import Database
from tests.migrations.longer import lengthen

def run_until_kth(url, target, k):
    left = iter(range(k - 1, -1, -1))
    def die(*_):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    event.listen(Engine, "before_cursor_execute", die)
    event.listen(Engine, "commit", die)
    schema.migrate(url, target)
    os._exit(0)

url, folder, step, *targets = sys.argv[1:]
lengthen(Path(folder))
for offset, target in enumerate(targets):
    for k in count(1 + offset % int(step), int(step)):
        child = os.fork()
        if child == 0:
            run_until_kth(url, target, k)
        _, status = os.waitpid(child, 0)
        database = Database(url, pool_size=1)
        print(target, "killed" if os.WIFSIGNALED(status) else status, database.read(schema.read_version), flush=True)
        database.close()
        if not os.WIFSIGNALED(status):
            break
"""


@pytest.fixture
def longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The folder of the revisions that follow the shipped ones."""
    for name in {"postgres", "each_database", "each_empty"} & set(request.fixturenames):
        request.getfixturevalue(name)  # a server's template is made of the shipped ones, for all tests after this one
    lengthen(tmp_path, monkeypatch.setattr)
    return tmp_path


def test_the_versions_by_file_name_are_those_alembic_finds() -> None:
    script = ScriptDirectory.from_config(schema.configuration())
    assert tuple(reversed([revision.revision for revision in script.walk_revisions()])) == schema.VERSIONS


def test_there_is_one_line_of_versions() -> None:
    script = ScriptDirectory.from_config(schema.configuration())
    assert script.get_heads() == [schema.KNOWN]
    assert script.get_bases() == [schema.VERSIONS[0]]


@pytest.mark.slow
@pytest.mark.usefixtures("longer")
def test_each_version_forward_back_and_forward_gives_the_same_schema(empty_database_url: str) -> None:
    url = empty_database_url
    empty = dump(url)
    before = empty
    for version in schema.VERSIONS:
        previous = standing(url) or schema.BASE
        assert schema.migrate(url, version) == [version]
        after = dump(url)
        assert after != before
        assert schema.migrate(url, previous) == [previous]
        assert dump(url) == before if previous != schema.BASE else tables(url) <= {"alembic_version"}
        schema.migrate(url, version)
        assert dump(url) == after
        before = after


@pytest.mark.slow
@pytest.mark.usefixtures("longer")
def test_all_the_way_down_and_up_again_gives_the_same_schema(each_empty: GivenDatabase) -> None:
    schema.migrate(each_empty.url)
    first = catalogue(each_empty.direct_url)
    schema.migrate(each_empty.url, schema.BASE)
    assert tables(each_empty.direct_url) <= {"alembic_version"}
    schema.migrate(each_empty.url)
    assert catalogue(each_empty.direct_url) == first


def test_migrating_again_changes_nothing(database_url: str) -> None:
    assert schema.migrate(database_url) == []


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["forward", "back"])
def test_case_31_killed_at_any_statement_the_rerun_succeeds(
    postgres: DatabaseServer, direction: str, longer: Path
) -> None:
    """FAILURES 31. Wherever it dies the database stands at a whole version, and running it again gets there.

    Every day at each second place, beginning in the next version at another one.
    """
    step = scaled(1, 2)
    url, reference = postgres.create_empty(), postgres.create_empty()
    schema.migrate(reference)
    targets = list(schema.VERSIONS)
    if direction == "back":
        schema.migrate(url)
        schema.migrate(reference, schema.BASE)
        targets = [*reversed(schema.VERSIONS[:-1]), schema.BASE]
    ran = subprocess.run(
        [sys.executable, "-c", DIES, url, str(longer), str(step), *targets],
        capture_output=True, text=True, timeout=840, check=True,
    )  # fmt: skip
    outcomes = [line.split() for line in ran.stdout.splitlines()]
    for target in targets:
        *deaths, last = [(word, version) for aim, word, version in outcomes if aim == target]
        standing_there = "None" if target == schema.BASE else target
        assert last == ("0", standing_there), ran.stderr
        assert {word for word, _ in deaths} == {"killed"}
        assert len({version for _, version in deaths} - {standing_there}) == 1, "half-way"
        assert len(deaths) > 4
    assert dump(url) == dump(reference)
    postgres.drop(url)
    postgres.drop(reference)


@pytest.mark.slow
@pytest.mark.usefixtures("longer")
def test_migrators_that_come_together_take_turns(each_empty: GivenDatabase) -> None:
    passed: list[list[str]] = []
    threads = [threading.Thread(target=lambda: passed.append(schema.migrate(each_empty.url))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience())
    assert len(passed) == len(threads)
    assert sorted(version for versions in passed for version in versions) == sorted(schema.VERSIONS)


@pytest.mark.slow
def test_who_holds_up_a_migration_is_named_and_it_goes_on_without_them(
    each_empty: GivenDatabase, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any role of the database may take the migration lock."""
    monkeypatch.setattr(schema, "SOON", statement("soon", "SET LOCAL lock_timeout = '200ms'"))
    with psycopg.connect(each_empty.direct_url, autocommit=True) as stranger:
        stranger.execute("SELECT pg_advisory_lock(%s)", [schema.MIGRATING])
        monkeypatch.setattr(schema, "WAITS", 2)
        with pytest.raises(schema.SchemaError, match=f"processes {stranger.info.backend_pid} \\("):
            schema.migrate(each_empty.url)
        assert [record.msg for record in caplog.records] == ["schema_waits"] * 2
    monkeypatch.setattr(schema, "WAITS", 100)
    assert tuple(schema.migrate(each_empty.url)) == schema.VERSIONS


def test_a_server_refuses_a_database_without_schema(empty_database_url: str) -> None:
    with pytest.raises(schema.SchemaError, match="run: gpuwright db migrate"):
        reading(empty_database_url)


@pytest.mark.slow
@pytest.mark.usefixtures("longer")
def test_a_server_refuses_an_older_schema(empty_database_url: str) -> None:
    schema.migrate(empty_database_url, schema.VERSIONS[0])
    with pytest.raises(schema.SchemaError, match=f"{schema.VERSIONS[0]}.*run: gpuwright db migrate"):
        reading(empty_database_url)


def test_a_server_and_a_migrator_refuse_a_schema_from_the_future(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(schema.SchemaError, match="9999, unknown to this gpuwright"):
        reading(database_url)
    with pytest.raises(schema.SchemaError, match="9999, unknown to this gpuwright"):
        schema.migrate(database_url)


def test_a_schema_from_before_the_start_is_refused_with_the_way_out(database_url: str) -> None:
    """Its comment promises to serve, as a newer schema's would: it is not newer."""
    with psycopg.connect(database_url) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0007'")
        connection.execute("COMMENT ON TABLE alembic_version IS '0007 serves 0004'")
    older = rf"0007, which this gpuwright \(from {schema.VERSIONS[0]} on\) cannot migrate; .*an empty database"
    with pytest.raises(schema.SchemaError, match=older):
        reading(database_url)
    with pytest.raises(schema.SchemaError, match=older):
        schema.migrate(database_url)


def test_a_target_that_does_not_exist_is_refused_with_those_that_do(empty_database_url: str) -> None:
    with pytest.raises(schema.SchemaError, match=rf"schema 7 is not known; .* base, {schema.VERSIONS[0]}"):
        schema.migrate(empty_database_url, "7")


def reading(url: str) -> None:
    database = Database(url, pool_size=1)
    try:
        database.read(schema.require)
    finally:
        database.close()


def standing(url: str) -> str | None:
    database = Database(url, pool_size=1)
    try:
        return database.read(schema.read_version)
    finally:
        database.close()


def tables(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace")
        return {name for (name,) in found if not name.startswith("alembic_version_")}


def dump(url: str) -> str:
    """The schema as pg_dump of the wheel writes it."""
    program = find_installed() / "bin/pg_dump"
    ran = subprocess.run(
        [str(program), "--schema-only", url], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}
    )
    # It guards itself with a random word against text that would be run as a command.
    return re.sub(r"^\\(un)?restrict .*$", "", ran.stdout, flags=re.MULTILINE)


def catalogue(url: str) -> list[tuple[str, ...]]:
    """Columns, constraints, indexes, functions and triggers: for servers older and newer than our pg_dump."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            """
            SELECT 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                   coalesce(pg_get_expr(d.adbin, d.adrelid), '') || a.attnotnull || a.attidentity::text
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
            LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
            WHERE c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
            UNION ALL SELECT 'constraint', conname, pg_get_constraintdef(oid), '', '' FROM pg_constraint
            WHERE connamespace = 'public'::regnamespace
            UNION ALL SELECT 'index', indexname, indexdef, '', '' FROM pg_indexes WHERE schemaname = 'public'
            UNION ALL SELECT 'function', proname, prosrc, '', '' FROM pg_proc
            WHERE pronamespace = 'public'::regnamespace
            UNION ALL SELECT 'trigger', tgname, pg_get_triggerdef(oid), '', '' FROM pg_trigger
            WHERE NOT tgisinternal
            ORDER BY 1, 2, 3, 4, 5
            """
        ).fetchall()
