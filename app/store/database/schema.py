"""Checks the schema version of a database, and migrates it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from app.store.database.database import statement
from app.store.database.urls import sqlalchemy_url

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

COMMAND = "gpuwright db migrate"
BASE = "base"

# Any fixed number: every migrator takes the advisory lock of this number first.
MIGRATING = 0x6770_7577_7269  # "gpuwri"
LOGGED_AFTER_SECONDS = 10  # that another process holds the lock
WAITS = 60  # of so many seconds, then the migrator gives up: a migration takes minutes, not longer

IS_MIGRATED = statement("is_migrated", "SELECT to_regclass('alembic_version')")
FOUND = statement("schema_version", "SELECT version_num FROM alembic_version")
SERVES = statement(
    "schema_serves",
    """
    SELECT version_num, coalesce(
        substring(obj_description('alembic_version'::regclass, 'pg_class') FROM '^' || version_num || ' serves (.*)'),
        version_num
    ) AS oldest FROM alembic_version
    """,
)
TAKE_TURNS = statement("migrators_take_turns", "SELECT pg_advisory_xact_lock(:name)")
SOON = statement("migrators_wait_for_seconds", f"SET LOCAL lock_timeout = '{LOGGED_AFTER_SECONDS}s'")
WHENEVER = statement("migrations_wait", "SET LOCAL lock_timeout TO DEFAULT")
HOLDERS = statement(
    "who_holds_the_migrators_lock",
    f"""
    SELECT string_agg(pid || ' (' || usename || ')', ', ') FROM pg_locks JOIN pg_stat_activity USING (pid)
    WHERE locktype = 'advisory' AND granted AND objsubid = 1
      AND CAST(classid AS bigint) * 4294967296 + CAST(objid AS bigint) = {MIGRATING}
    """,
)


class SchemaError(Exception):
    """The database has another schema than this gpuwright needs; the message names the command to run."""


def _list_shipped() -> tuple[str, ...]:
    """Returns the versions of this installation, oldest first, by file name: loading alembic takes 0.3 s."""
    folder = files("migrations").joinpath("versions")
    return tuple(sorted(entry.name[:4] for entry in folder.iterdir() if entry.name[:4].isdigit()))


VERSIONS = _list_shipped()
KNOWN = VERSIONS[-1]  # the version that a server works with


def read_version(connection: Connection) -> str | None:
    """Returns the schema version of the database; None if it has none."""
    if connection.scalar(IS_MIGRATED) is None:
        return None
    version: str | None = connection.scalar(FOUND)
    return version


def advice(version: str | None) -> str:
    """Explains why a server does not work on a database of this version, and what to run."""
    if version is None:
        return f"the database has no gpuwright schema yet; run: {COMMAND}"
    if version < VERSIONS[0]:
        return (
            f"the database has schema {version}, which this gpuwright (from {VERSIONS[0]} on) cannot migrate; "
            "give it an empty database: another DATABASE_URL, or another --data-dir"
        )
    if version not in VERSIONS:
        return (
            f"the database has schema {version}, unknown to this gpuwright (which knows up to {KNOWN}); "
            f"install the newer gpuwright that created it, then run: {COMMAND}"
        )
    return f"the database has schema {version}, and this gpuwright needs {KNOWN}; run: {COMMAND}"


def refusal(connection: Connection) -> str:
    """Returns why this gpuwright does not work on the database; empty if it does.

    It works on its own schema, and on a newer one whose migration names ours in SERVES. So replicas of two versions
    run side by side while they are replaced in turn.
    """
    if read_version(connection) is None:
        return advice(None)
    return refusal_for(*connection.execute(SERVES).one())


def refusal_for(version: str, oldest: str) -> str:
    """Returns the same as `refusal`, from the schema's version and the oldest gpuwright that it serves."""
    newer_but_serving = version > KNOWN and oldest <= KNOWN
    return "" if version == KNOWN or newer_but_serving else advice(version)


def require(connection: Connection) -> None:
    """Refuses a database that this gpuwright does not work on."""
    reason = refusal(connection)
    if reason:
        raise SchemaError(reason)


def require_own(connection: Connection) -> None:
    """Refuses a database whose schema is not exactly ours: a newer schema has unknown tables."""
    version = read_version(connection)
    if version != KNOWN:
        raise SchemaError(advice(version))


def migrate(url: str, target: str = "head", *, back: bool = True) -> list[str]:
    """Migrates to `target` (a version, `head`, or `base` for no tables), forward or back; returns the versions passed.

    Going back drops tables with all their rows; without `back` it is refused.

    Each step is one transaction that first takes the migration lock and reads the current version, so any number of
    migrators may run, and any may be killed at any moment.
    """
    target = KNOWN if target == "head" else target
    if target not in (BASE, *VERSIONS):
        raise SchemaError(f"schema {target} is not known; this gpuwright knows {BASE}, {', '.join(VERSIONS)}")
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"prepare_threshold": None})
    passed: list[str] = []
    try:
        while True:
            step = _take_turn(engine, lambda connection: _step(connection, target, back=back))
            if step is None:
                return passed
            passed.append(step)
    finally:
        engine.dispose()


def _take_turn(engine: Engine, step: Callable[[Connection], str | None]) -> str | None:
    """Runs the step once no other process changes the schema; logs which processes it waits for."""
    for _ in range(WAITS):
        try:
            with engine.begin() as connection:
                connection.execute(SOON)
                take_turn(connection)
                connection.execute(WHENEVER)
                return step(connection)
        except OperationalError as error:
            if not isinstance(error.orig, LockNotAvailable):
                raise
        with engine.connect() as connection:
            holders = connection.scalar(HOLDERS)
        log.warning("schema_waits", extra={"for": "connections that hold the migration lock", "processes": holders})
    raise SchemaError(
        f"other processes have held the migration lock for {WAITS * LOGGED_AFTER_SECONDS} s: "
        f"processes {holders} of Postgres; end them with pg_terminate_backend and run the migration again"
    )


def take_turn(connection: Connection) -> None:
    """Takes the migration lock until the transaction ends."""
    # A lock of the transaction, not of the session: it works through a pooler, and ends with its holder.
    connection.execute(TAKE_TURNS, {"name": MIGRATING})


def _step(connection: Connection, target: str, *, back: bool) -> str | None:
    """Migrates one version towards `target`; None if it is reached already."""
    line = (BASE, *VERSIONS)
    current = read_version(connection) or BASE
    if current not in line:
        raise SchemaError(advice(current))
    here, there = line.index(current), line.index(target)
    if here == there:
        return None
    direction: Literal[1, -1] = 1 if there > here else -1
    if direction == -1 and not back:
        raise SchemaError(
            f"going back from schema {current} to {target} drops tables with all their rows; "
            "make a backup (gpuwright db backup FILE), then repeat the command with --drop-data"
        )
    following = line[here + direction]
    logging.getLogger("alembic").setLevel(logging.WARNING)
    from alembic import command  # imported only when there is something to do: it takes 0.3 s

    log.info("schema_moves", extra={"from": current, "to": following})
    config = configuration()
    config.attributes["connection"] = connection
    (command.upgrade if direction == 1 else command.downgrade)(config, following)
    comment = "NULL" if following == BASE else f"'{following} serves {_oldest_served(config, following)}'"
    connection.execute(statement("schema_says_whom_it_serves", f"COMMENT ON TABLE alembic_version IS {comment}"))
    return following


def _oldest_served(config: Config, version: str) -> str:
    """Returns the oldest schema whose gpuwright still works on this version."""
    from alembic.script import ScriptDirectory

    revision = ScriptDirectory.from_config(config).get_revision(version)
    serves = getattr(revision.module, "SERVES", version)
    if not (isinstance(serves, str) and serves.isdecimal() and serves <= version):
        raise SchemaError(f"migration {version} says SERVES = {serves!r}; allowed: {version} or a version before it")
    return serves


def configuration() -> Config:
    """Returns alembic's configuration for this installation's migrations, in whatever folder the command runs."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    return config
