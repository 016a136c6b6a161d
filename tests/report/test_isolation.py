"""A tenant's role sees its rows, in every view and in what views are made from, and nothing else of the database."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache, partial
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
from psycopg import errors, sql

from app.store.access import readers
from app.store.access.readers import FLEET, ReaderRefused, ReportReader
from app.store.database import schema
from app.store.database.database import Database
from cli.main import main
from tests.support.postgres import DatabaseServer

RELATIONS = """
    SELECT c.oid::regclass::text, array_agg(a.attname::text) FROM pg_class AS c
    JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = ANY(%s::regnamespace[])
        AND c.relkind IN ('v', 'r', 'p') AND NOT c.relispartition
    GROUP BY c.oid
"""
PARTS = "SELECT oid::regclass::text FROM pg_class WHERE relispartition AND relkind = 'r'"
SHARED = {"report.days", "report.months", "report.calendar", "report.prices", "report.carbon_intensity"}
ALSO_SHARED = {"price", "carbon_intensity"}
OF_TENANT = {"allocation", "cost_hour", "cost_day", "service_hour", "saving"}
VIEWS_OF_FLEET = {"report.invoice"}  # shares of idle GPUs tell of others
OF_FLEET = {"node_hour", "release_hour", "idle_node", "gpu_owned", "rented_node"}
PLAN = """
    INSERT INTO plan (generation, epoch, at, lane, state, snapshot, body, desired, others)
    VALUES (1, 1, now(), 'full', 'done', '[]', '', '', '[{"planner": "inss", "resourceCost": 1, "ageSeconds": 0}]')
"""


def relations(url: str, schema: str) -> dict[str, list[str]]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute(RELATIONS, [[schema]]).fetchall())


def rows(url: str, relation: str, where: str = "") -> list[str]:
    """Every row as text, in order."""
    found = connected(url).execute(f"SELECT t::text FROM {relation} AS t {where}".encode())
    return sorted(row[0] for row in found)


@cache
def connected(url: str) -> psycopg.Connection[Any]:
    """One connection for all that a role asks; the database that it is to is dropped with it."""
    return psycopg.connect(url, autocommit=True)


def as_role(url: str, role: str, password: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=f"{role}:{password}@127.0.0.1:{parts.port}"))


@pytest.fixture(scope="module")
def roles(postgres: DatabaseServer, history_url: str) -> Iterator[Mapping[str, str]]:
    """URLs of four roles: of two tenants, of the fleet, and of nobody."""
    database = Database(history_url, pool_size=1)
    urls, made = {}, []
    reads = {"shop": ["shop"], "lab": ["lab"], "fleet": FLEET, "nobody": []}
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        for name, tenants in reads.items():
            role = f"{name}_{secrets.token_hex(4)}"
            made.append(role)
            urls[name] = as_role(history_url, role, readers.create_role(admin, role))
            if name != "nobody":
                database.write(partial(readers.grant, role=role, tenants=tenants))
        yield urls
        for role in made:
            database.write(partial(readers.revoke, role=role))
            admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    database.close()


@pytest.mark.slow
def test_a_tenants_role_sees_only_its_rows_in_every_view(history_url: str, roles: Mapping[str, str]) -> None:
    views = relations(history_url, "report")
    seen = 0
    for view, columns in views.items():
        for tenant in ("shop", "lab"):
            found = rows(roles[tenant], view)
            if view in SHARED:
                wanted = rows(history_url, view)
            elif "tenant" in columns and view not in VIEWS_OF_FLEET:
                wanted = rows(history_url, view, f"WHERE tenant = '{tenant}'")
            else:
                wanted = []
            assert found == wanted, (view, tenant)
            seen += bool(found)
    assert seen > 60


@pytest.mark.slow
def test_who_reads_the_fleet_sees_every_row_of_every_view(history_url: str, roles: Mapping[str, str]) -> None:
    for view in relations(history_url, "report"):
        found = rows(roles["fleet"], view)
        assert found == rows(history_url, view), view
        assert found, view


def test_temporary_tables_named_as_the_catalog_show_no_more(roles: Mapping[str, str]) -> None:
    with psycopg.connect(roles["shop"]) as connection:
        connection.execute("SET TRANSACTION READ WRITE")
        before = connection.execute("SELECT report.reads_fleet(), report.reads_tenants()").fetchone()
        connection.execute(
            "CREATE TEMP TABLE pg_class AS SELECT known.oid, mine.oid AS relowner "
            "FROM pg_catalog.pg_class AS known JOIN pg_roles AS mine ON mine.rolname = current_user"
        )
        connection.execute("SET LOCAL search_path = pg_temp, pg_catalog")
        assert connection.execute("SELECT report.reads_fleet(), report.reads_tenants()").fetchone() == before
        connection.rollback()
    assert before == (False, ["shop"])


@pytest.mark.slow
def test_what_views_are_made_from_shows_no_more(history_url: str, roles: Mapping[str, str]) -> None:
    for table in relations(history_url, "public"):
        if table in ALSO_SHARED:
            continue
        for tenant in ("shop", "lab"):
            if table in OF_TENANT:
                assert rows(roles[tenant], table) == rows(history_url, table, f"WHERE tenant = '{tenant}'")
            elif table in OF_FLEET:
                assert rows(roles[tenant], table) == []
            elif table == "report_reader":
                assert len(rows(roles[tenant], table)) == 1
            else:
                with pytest.raises(errors.InsufficientPrivilege):
                    rows(roles[tenant], table)
    with psycopg.connect(roles["shop"]) as connection:
        assert connection.execute("SELECT kind, name FROM object").fetchall() == [("Tenant", "shop")]
        assert connection.execute("SELECT generation, at, others, cross_check FROM plan").fetchall() == []


def test_parts_of_tables_cannot_be_read_past_the_policies(history_url: str, roles: Mapping[str, str]) -> None:
    with psycopg.connect(history_url) as connection:
        parts = [row[0] for row in connection.execute(PARTS)]
    assert "cost_hour_202611" in parts
    for part in parts:
        with pytest.raises(errors.InsufficientPrivilege):
            rows(roles["shop"], part)


@pytest.mark.parametrize("relation", ["report.cost_by_tenant", "report.prices", "cost_hour", "object"])
def test_a_role_that_was_granted_nothing_reads_nothing(roles: Mapping[str, str], relation: str) -> None:
    with pytest.raises(errors.InsufficientPrivilege):
        rows(roles["nobody"], relation)


@pytest.mark.parametrize(
    "trick",
    [
        "SET gpuwright.tenant = 'lab'",
        "SET row_security = off",
        "SET ROLE gpuwright",
        "INSERT INTO report_reader VALUES (current_user, '')",
        "UPDATE cost_hour SET tenant = 'shop'",
        "ALTER TABLE cost_hour DISABLE ROW LEVEL SECURITY",
        "CREATE FUNCTION report.reads_fleet() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "SELECT report.admit(current_user)",
    ],
)
def test_a_role_cannot_widen_what_it_sees(roles: Mapping[str, str], trick: str) -> None:
    with psycopg.connect(roles["shop"], autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        try:
            connection.execute(trick.encode())
            found = connection.execute("SELECT DISTINCT tenant FROM report.cost_by_tenant").fetchall()
        except errors.InsufficientPrivilege:
            return
        assert found == [("shop",)]


def test_a_reader_has_no_right_to_write_whatever_it_sets(roles: Mapping[str, str]) -> None:
    """What it begins with, it can change for itself; this it cannot."""
    with psycopg.connect(roles["fleet"], autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = off")
        written = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind IN ('r', 'p', 'v') "
            "AND relnamespace IN ('public'::regnamespace, 'report'::regnamespace) "
            "AND has_table_privilege(oid, 'INSERT, UPDATE, DELETE, TRUNCATE, TRIGGER')"
        ).fetchall()
        made = connection.execute(
            "SELECT has_schema_privilege('public', 'CREATE') OR has_schema_privilege('report', 'CREATE')"
        ).fetchone()
        connection.execute("ALTER ROLE CURRENT_USER SET default_transaction_read_only = on")
    assert (written, made) == ([], (False,))


def test_members_of_a_role_read_what_it_reads(
    postgres: DatabaseServer, history_url: str, roles: Mapping[str, str]
) -> None:  # fmt: skip
    group, name = urlsplit(roles["lab"]).username, f"anna_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        url = as_role(history_url, name, readers.create_role(admin, name))
        admin.execute(sql.SQL("GRANT {} TO {}").format(sql.Identifier(group or ""), sql.Identifier(name)))
        assert rows(url, "report.cost_by_tenant") == rows(history_url, "report.cost_by_tenant", "WHERE tenant = 'lab'")
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.mark.slow
def test_granting_again_replaces_and_revoking_ends(
    postgres: DatabaseServer, database_url: str
) -> None:  # fmt: skip
    role = f"teller_{secrets.token_hex(4)}"
    database = Database(database_url, pool_size=1)
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        url = as_role(database_url, role, readers.create_role(admin, role))
        assert readers.create_role(admin, role) == ""
        database.write(lambda c: readers.grant(c, role, FLEET))
        with pytest.raises(ReaderRefused, match="no tenant shop"):
            database.write(lambda c: readers.grant(c, role, ["shop"]))
        assert database.read(readers.list_readers) == [ReportReader(role, FLEET)]
        assert rows(url, "report.prices") == []
        assert database.write(lambda c: readers.revoke(c, role))
        assert not database.write(lambda c: readers.revoke(c, role))
        with pytest.raises(errors.InsufficientPrivilege):
            rows(url, "report.prices")
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    database.close()


@pytest.mark.slow
def test_who_reads_the_fleet_reads_views_of_plans_until_the_right_is_revoked(
    postgres: DatabaseServer, database_url: str
) -> None:
    role = f"teller_{secrets.token_hex(4)}"
    database = Database(database_url, pool_size=1)
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        url = as_role(database_url, role, readers.create_role(admin, role))
        database.write(partial(readers.grant, role=role, tenants=FLEET))
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(PLAN)
        assert len(rows(url, "report.other_planners")) == 1
        assert rows(url, "report.cross_checks") == []
        database.write(partial(readers.revoke, role=role))
        with psycopg.connect(url) as connection, pytest.raises(errors.InsufficientPrivilege):
            connection.execute("SELECT generation FROM plan")
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))
    database.close()


def test_a_role_that_cannot_be_made_or_bound_is_refused_with_what_to_do(database_url: str) -> None:
    database = Database(database_url, pool_size=1)
    connection = psycopg.connect(database_url, autocommit=True)
    with connection, pytest.raises(ReaderRefused, match="CREATE ROLE finance LOGIN"):
        readers.create_role(connection, "finance")
    with pytest.raises(ReaderRefused, match="owns the tables"):
        database.write(lambda c: readers.grant(c, "gpuwright", FLEET))
    with pytest.raises(ReaderRefused, match="there is no role finance"):
        database.write(lambda c: readers.grant(c, "finance", FLEET))
    database.close()


@pytest.mark.parametrize("tenants", [[""], ["shop", ""], []])
def test_no_name_of_a_tenant_stands_for_the_fleet(database_url: str, tenants: list[str]) -> None:
    database = Database(database_url, pool_size=1)
    role = f"finance_{secrets.token_hex(4)}"
    with pytest.raises(ReaderRefused, match=r"no tenant|at least one tenant"):
        database.write(lambda c: readers.grant(c, role, tenants))
    assert database.read(readers.list_readers) == []
    database.close()


@pytest.mark.parametrize("role", ["", "public", "none", "pg_read_all_data", "a\nb", "r" * 64, "\udc80"])
def test_names_that_are_no_readers_are_refused(
    postgres: DatabaseServer, database_url: str, monkeypatch: pytest.MonkeyPatch, role: str
) -> None:
    database = Database(database_url, pool_size=1)
    with pytest.raises(ReaderRefused, match="allowed are 1 to 63 bytes"):
        database.read(lambda c: readers.check(c, role, FLEET))
    database.close()
    with (
        psycopg.connect(postgres.server.admin_conninfo) as admin,
        pytest.raises(ReaderRefused, match="allowed are 1 to 63 bytes"),
    ):
        readers.create_role(admin, role)
    monkeypatch.setenv("DATABASE_URL", database_url)
    assert main(["db", "grant-report", role, "--fleet"]) == 3


@pytest.mark.slow
def test_a_reader_holds_few_connections(postgres: DatabaseServer, database_url: str) -> None:
    role = f"eager_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        url = as_role(database_url, role, readers.create_role(admin, role))
        with ExitStack() as held:
            for _ in range(readers.MOST_CONNECTIONS):
                held.enter_context(psycopg.connect(url))
            with pytest.raises(psycopg.OperationalError, match="too many connections for role"):
                psycopg.connect(url)
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


def test_a_role_that_was_there_gets_a_limit_where_it_has_none(postgres: DatabaseServer, database_url: str) -> None:
    role = f"teller_{secrets.token_hex(4)}"
    name = sql.Identifier(role)
    with (
        psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin,
        psycopg.connect(database_url, autocommit=True) as ours,
    ):

        def limit_of_role() -> int:
            row = admin.execute("SELECT rolconnlimit FROM pg_roles WHERE rolname = %s", [role]).fetchone()
            assert row
            return int(row[0])

        admin.execute(sql.SQL("CREATE ROLE {} LOGIN").format(name))
        assert readers.limit_connections(ours, role) == f'ALTER ROLE "{role}" CONNECTION LIMIT 5'
        assert limit_of_role() == -1
        assert readers.limit_connections(admin, role) == ""
        assert limit_of_role() == readers.MOST_CONNECTIONS
        admin.execute(sql.SQL("ALTER ROLE {} CONNECTION LIMIT 20").format(name))
        assert readers.limit_connections(admin, role) == ""
        assert limit_of_role() == 20
        admin.execute(sql.SQL("DROP ROLE {}").format(name))


@pytest.mark.slow
def test_readers_whose_role_or_rights_are_gone_are_marked(
    postgres: DatabaseServer, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As after a backup of one file was restored: the table is back, roles and their rights are not."""
    monkeypatch.setenv("DATABASE_URL", database_url)
    role = f"finance_{secrets.token_hex(4)}"
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        readers.create_role(admin, role)
        with psycopg.connect(database_url, autocommit=True) as ours:
            ours.execute("INSERT INTO report_reader VALUES (%s, ''), ('gone', 'shop')", [role])
        assert main(["db", "readers"]) == 0
        told = capsys.readouterr().out.splitlines()
        assert told[1].split(maxsplit=4)[1:] == ["the", "whole", "fleet", "may not read the views: grant again"]
        assert told[2].split(maxsplit=2) == ["gone", "shop", "the role does not exist: grant again"]
        assert main(["db", "grant-report", role, "--fleet"]) == 0
        assert main(["db", "revoke-report", "gone"]) == 0
        assert main(["db", "readers"]) == 0
        assert "grant again" not in capsys.readouterr().out
        assert main(["db", "revoke-report", role]) == 0
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.slow
def test_going_back_to_an_empty_database_leaves_a_reader_no_rights(postgres: DatabaseServer, database_url: str) -> None:

    role = f"late_{secrets.token_hex(4)}"
    database = Database(database_url, pool_size=1)
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        url: Any = as_role(database_url, role, readers.create_role(admin, role))
        database.write(lambda c: readers.grant(c, role, FLEET))
        database.close()
        schema.migrate(database_url, schema.BASE)
        with pytest.raises(errors.UndefinedTable):
            rows(url, "cost_hour")
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.slow
def test_the_command_line_lets_a_role_in_and_out(
    postgres: DatabaseServer, database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    role = f"finance_{secrets.token_hex(4)}"
    assert main(["db", "grant-report", role, "--fleet"]) == 3
    assert f"CREATE ROLE {role} LOGIN" in capsys.readouterr().err
    assert main(["db", "grant-report", role, "--tenant", ""]) == 2
    assert "a tenant's name is empty" in capsys.readouterr().err
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        readers.create_role(admin, role)
        assert main(["db", "grant-report", role, "--fleet"]) == 0
        assert main(["db", "readers"]) == 0
        assert "the whole fleet" in capsys.readouterr().out
        assert main(["db", "grant-report", role, "--tenant", "nowhere"]) == 3
        assert main(["db", "revoke-report", role]) == 0
        assert main(["db", "revoke-report", role]) == 3
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.slow
def test_on_a_folder_the_role_is_made_with_a_password_that_is_shown(
    postgres: DatabaseServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("DATABASE_URL", raising=False)
    role, folder = f"finance_{secrets.token_hex(4)}", str(postgres.server.data_dir)
    assert main(["db", "migrate", "--data-dir", folder]) == 0
    assert main(["db", "grant-report", role, "--tenant", "nowhere", "--data-dir", folder]) == 3
    assert "no tenant nowhere" in capsys.readouterr().err  # and no role is left that has a password nobody saw
    assert main(["db", "grant-report", role, "--fleet", "--data-dir", folder]) == 0
    password = capsys.readouterr().out.split("password ")[1].split(",")[0]
    url = as_role(postgres.server.url, role, password)
    assert rows(url, "report.prices") == []
    connected(url).close()
    assert main(["db", "revoke-report", role, "--data-dir", folder]) == 0
    with psycopg.connect(postgres.server.admin_conninfo, autocommit=True) as admin:
        admin.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["eu", "nan", "--from", "2026-02-01"], "nan is not a number from 0 to 10000"),
        (["eu", "inf", "--from", "2026-02-01"], "inf is not a number from 0 to 10000"),
        (["eu", "1e-999999", "--from", "2026-02-01"], "of at most 9 decimals"),
        (["", "5", "--from", "2026-02-01"], "'' is no region"),
        (["eu west", "5", "--from", "2026-02-01"], "'eu west' is no region"),
        (["eu", "5", "--from", "2026-13-01"], "2026-13-01 is not a day; allowed is YYYY-MM-DD"),
    ],
)
def test_an_intensity_that_makes_no_sense_is_refused_with_what_is_allowed(
    words: list[str], told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert main(["db", "carbon", *words]) == 2
    assert told in capsys.readouterr().err


def test_an_intensity_is_told_in_plain_digits(
    database_url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    assert main(["db", "carbon", "eu", "1e3", "--from", "2026-02-01"]) == 0
    assert "eu emits 1000 g a kWh" in capsys.readouterr().out


@pytest.mark.slow
def test_an_intensity_ends_where_the_next_begins(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", database_url)
    for grams, begins in (("300", "2026-01-01"), ("200", "2026-06-01"), ("250.5", "2026-03-01"), ("240", "2026-03-01")):
        assert main(["db", "carbon", "eu", grams, "--from", begins]) == 0
    with psycopg.connect(database_url) as connection:
        found = connection.execute(
            "SELECT valid_from::text, valid_to::text, grams_per_kwh::int FROM report.carbon_intensity ORDER BY 1"
        ).fetchall()
    assert found == [
        ("2026-01-01", "2026-03-01", 300), ("2026-03-01", "2026-06-01", 240), ("2026-06-01", None, 200),
    ]  # fmt: skip
