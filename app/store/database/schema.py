"""Knows the schema of this version, and migrates a database to it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING, Literal

from psycopg.errors import LockNotAvailable
from sqlalchemy import Connection, Engine, create_engine
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from app.store.database.database import sqlalchemy_url, statement

if TYPE_CHECKING:
    from alembic.config import Config

log = logging.getLogger(__name__)

COMMAND = "gpuwright db migrate"
BASE = "base"

# Any fixed number: whoever migrates this database takes the lock of this name first.
MIGRATING = 0x6770_7577_7269  # "gpuwri"
SAID_AFTER_SECONDS = 10  # that somebody else holds it
WAITS = 60  # of so many seconds, then it is given up: a migration takes minutes, not longer

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
SOON = statement("migrators_wait_for_seconds", f"SET LOCAL lock_timeout = '{SAID_AFTER_SECONDS}s'")
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
    """The database speaks another schema than this gpuwright; the message says which command to run."""


def _shipped() -> tuple[str, ...]:
    """Versions that ship with this installation, oldest first; by file name: loading alembic takes 0.3 s."""
    folder = files("migrations").joinpath("versions")
    return tuple(sorted(entry.name[:4] for entry in folder.iterdir() if entry.name[:4].isdigit()))


VERSIONS = _shipped()
KNOWN = VERSIONS[-1]  # the one a server works with


def found(connection: Connection) -> str | None:
    """The schema version of the database; None if it has none."""
    if connection.scalar(IS_MIGRATED) is None:
        return None
    version: str | None = connection.scalar(FOUND)
    return version


def advice(version: str | None) -> str:
    """Why a server does not work on a database of this version, and what to run."""
    if version is None:
        return f"the database has no gpuwright schema yet; run: {COMMAND}"
    if version not in VERSIONS:
        return (
            f"the database has schema {version}, unknown to this gpuwright (which knows up to {KNOWN}); "
            f"install the newer gpuwright that created it, then run: {COMMAND}"
        )
    return f"the database has schema {version}, and this gpuwright needs {KNOWN}; run: {COMMAND}"


def refusal(connection: Connection) -> str:
    """Why this gpuwright does not work on the database; empty where it does.

    It works on its own schema, and on a newer one whose migration says that it still serves ours: so replicas of two
    versions run side by side while they are replaced one after the other.
    """
    if found(connection) is None:
        return advice(None)
    return against(*connection.execute(SERVES).one())


def against(version: str, oldest: str) -> str:
    """As `refusal`, from the schema's version and the oldest gpuwright that it serves."""
    newer_but_serving = version not in VERSIONS and oldest <= KNOWN
    return "" if version == KNOWN or newer_but_serving else advice(version)


def require(connection: Connection) -> None:
    """Refuse a database that this gpuwright does not work on."""
    reason = refusal(connection)
    if reason:
        raise SchemaError(reason)


def require_own(connection: Connection) -> None:
    """Refuse a database whose schema is not exactly ours: of a newer one not every table is known."""
    version = found(connection)
    if version != KNOWN:
        raise SchemaError(advice(version))


def migrate(url: str, target: str = "head", *, back: bool = True) -> list[str]:
    """Go to `target` (a version, `head`, or `base` for nothing at all), forward or back; the versions passed.

    Going back drops tables with all their rows; without `back` it is refused.

    Each step is one transaction that begins by taking the migration lock and reading where the database
    stands, so that any number of migrators may run, and any may be killed, at any moment.
    """
    target = KNOWN if target == "head" else target
    if target not in (BASE, *VERSIONS):
        raise SchemaError(f"schema {target} is not known; this gpuwright knows {BASE}, {', '.join(VERSIONS)}")
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"prepare_threshold": None})
    passed: list[str] = []
    try:
        while True:
            step = _in_turn(engine, lambda connection: _step(connection, target, back=back))
            if step is None:
                return passed
            passed.append(step)
    finally:
        engine.dispose()


def _in_turn(engine: Engine, step: Callable[[Connection], str | None]) -> str | None:
    """The step, once nobody else changes the schema; who holds it up is named meanwhile."""
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
        f"other processes have held the migration lock for {WAITS * SAID_AFTER_SECONDS} s: "
        f"processes {holders} of Postgres; end them with pg_terminate_backend and run the migration again"
    )


def take_turn(connection: Connection) -> None:
    """Wait until nobody else changes the schema, and keep others from it until the transaction ends."""
    # Of the transaction, not of the session: it must also work through a pooler, and ends with its holder.
    connection.execute(TAKE_TURNS, {"name": MIGRATING})


def _step(connection: Connection, target: str, *, back: bool) -> str | None:
    """One version towards `target`; None when there already."""
    line = (BASE, *VERSIONS)
    current = found(connection) or BASE
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
    from alembic import command  # only where there is something to do: it takes 0.3 s

    log.info("schema_moves", extra={"from": current, "to": following})
    config = configuration()
    config.attributes["connection"] = connection
    (command.upgrade if direction == 1 else command.downgrade)(config, following)
    said = "NULL" if following == BASE else f"'{following} serves {_oldest_served(config, following)}'"
    connection.execute(statement("schema_says_whom_it_serves", f"COMMENT ON TABLE alembic_version IS {said}"))
    return following


def _oldest_served(config: Config, version: str) -> str:
    """The oldest gpuwright, by the schema that it knows, that goes on working on this one."""
    from alembic.script import ScriptDirectory

    revision = ScriptDirectory.from_config(config).get_revision(version)
    serves = getattr(revision.module, "SERVES", version)
    if not (isinstance(serves, str) and serves.isdecimal() and serves <= version):
        raise SchemaError(f"migration {version} says SERVES = {serves!r}; allowed: {version} or a version before it")
    return serves


def configuration() -> Config:
    """Alembic pointed at the migrations of this installation, wherever the command is run."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(files("migrations")).replace("%", "%%"))
    return config
