"""`gpuwright db`: on DATABASE_URL, and on a folder whether or not `gpuwright up` runs there."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from app.embedded import EmbeddedPostgres
from app.store.database import schema
from app.store.database.versions import LEAP_BY
from cli.main import main
from cli.verbs.db import check_disk
from tests.support.postgres import DatabaseServer, GivenDatabase, at_database


@pytest.fixture(autouse=True)
def no_database_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.delenv("DATABASE_LISTEN_URL", raising=False)


@pytest.mark.slow
def test_migrate_goes_forward_and_back_and_says_so(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    assert main(["db", "migrate"]) == 0
    assert f"schema {schema.KNOWN}: migrated through {', '.join(schema.VERSIONS)}" in capsys.readouterr().out
    assert main(["db", "migrate"]) == 0
    assert "already there" in capsys.readouterr().out
    assert main(["db", "migrate", "--to", "base"]) == 3, "all data would be lost"
    assert "drops tables with all their rows" in capsys.readouterr().err
    assert main(["db", "migrate"]) == 0
    assert "already there" in capsys.readouterr().out
    assert main(["db", "migrate", "--to", "base", "--drop-data"]) == 0
    assert main(["db", "migrate", "--to", "77"]) == 3
    assert "schema 77 is not known" in capsys.readouterr().err


@pytest.fixture
def durable(each_database: GivenDatabase) -> None:
    """This database waits for its disk, as ours do by themselves and the tests' do not."""
    with psycopg.connect(each_database.direct_url) as connection:
        name = connection.info.dbname
        connection.execute(f'ALTER ROLE CURRENT_USER IN DATABASE "{name}" SET synchronous_commit = on'.encode())


@pytest.mark.usefixtures("durable")
def test_check_tells_a_pooler_and_a_deaf_listen(
    each_database: GivenDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", each_database.url)
    assert main(["db", "check"]) == 0
    said = capsys.readouterr().out
    assert f"schema               {schema.KNOWN}" in said
    assert ("works through DATABASE_URL" in said) == each_database.direct
    assert ("leave GPUWRIGHT_DATABASE_DIRECT unset" in said) != each_database.direct


@pytest.mark.usefixtures("durable")
def test_check_finds_the_direct_way_past_a_pooler(
    each_database: GivenDatabase, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", each_database.url)
    monkeypatch.setenv("DATABASE_LISTEN_URL", each_database.direct_url)
    assert main(["db", "check"]) == 0
    assert "works through DATABASE_LISTEN_URL" in capsys.readouterr().out


def test_check_fails_where_durability_is_off(
    postgres: DatabaseServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url = postgres.create()
    monkeypatch.setenv("DATABASE_URL", url + "?options=-csynchronous_commit%3Doff")
    assert main(["db", "check"]) == 1
    assert "set synchronous_commit = on" in capsys.readouterr().out
    postgres.drop(url)


def test_check_measures_the_disk_of_a_data_folder(tmp_path: Path) -> None:
    assert check_disk(tmp_path, least_gib=0).verdict == "ok"
    finding = check_disk(tmp_path, least_gib=1e9)
    assert finding.verdict == "wrong"
    assert finding.advice.endswith(f"free some space at {tmp_path}")


def test_check_fails_on_an_unknown_schema(
    empty_database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_database_url)
    assert main(["db", "check"]) == 1
    assert "run: gpuwright db migrate" in capsys.readouterr().out


def test_an_unreachable_database_is_reported_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://u:canary-password@127.0.0.1:1/x")
    for action in (["check"], ["migrate"], ["backup", str(tmp_path / "x")]):
        assert main(["db", *action]) == 4
    captured = capsys.readouterr()
    assert "canary-password" not in captured.out + captured.err


@pytest.mark.slow
def test_a_folder_is_backed_up_while_its_server_runs_and_restored_into_a_new_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "world.tar.gz"
    with EmbeddedPostgres(old) as server:
        schema.migrate(server.url)
        with psycopg.connect(server.url) as connection:
            connection.execute("UPDATE version SET value = 42 WHERE name = 'object'")
        assert main(["db", "backup", str(file), "--data-dir", str(old)]) == 0
    assert main(["db", "restore", str(file), "--data-dir", str(new)]) == 0
    assert main(["db", "restore", str(file), "--data-dir", str(new)]) == 0, "nothing but the seeds is there yet"
    assert main(["db", "check", "--data-dir", str(new)]) == 0
    with EmbeddedPostgres(new) as server, psycopg.connect(server.url) as connection:
        assert connection.execute("SELECT value FROM version WHERE name = 'object'").fetchone() == (42 + LEAP_BY,)
    assert "restored" in capsys.readouterr().out


def test_a_folder_without_a_database_is_not_made_by_looking(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["db", "check", "--data-dir", str(tmp_path / "none")]) == 2
    assert "there is no database in" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_a_missing_backup_is_reported(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", at_database(database_url, "never"))
    assert main(["db", "restore", "/nowhere/world.tar.gz"]) == 2
    assert "the file /nowhere/world.tar.gz does not exist" in capsys.readouterr().err


@pytest.mark.slow
def test_a_folder_that_is_named_wins_over_the_database_of_the_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://production@127.0.0.1:1/x")
    assert main(["db", "migrate", "--data-dir", str(tmp_path / "here")]) == 0
    assert main(["db", "check"]) == 4
    assert "cannot be reached" in capsys.readouterr().err


def test_a_token_that_cannot_be_written_is_reported_and_not_made(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    file = tmp_path / "none" / "admin.token"
    assert main(["db", "token", "--out", str(file)]) == 2
    assert f"cannot write {file}: no such file or directory; no token was created" in capsys.readouterr().err
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM token").fetchone() == (0,)
