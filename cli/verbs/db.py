"""`gpuwright db`: migrate, check, back up and restore the database of DATABASE_URL or of a data folder."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cli import exits, readers
from cli.admin import made
from cli.arguments import completes
from cli.exits import Failed
from cli.serving import cause_of

if TYPE_CHECKING:
    from app.store.database.inspection import DatabaseFinding

EPILOG = """\
The database is the one in --data-dir if that is given, else the one of DATABASE_URL, else the one in ./.gpuwright;
whether or not `gpuwright up` runs there.

Examples:
  gpuwright db check
  gpuwright db token --out admin.token
  gpuwright db backup world.tar.gz
  gpuwright db restore world.tar.gz --data-dir /srv/new
  gpuwright db grant-report finance --fleet
  DATABASE_URL=postgresql://gpuwright@db/gpuwright gpuwright db migrate
"""
DATABASE_LABEL = "gpuwright db token"
LEAST_FREE_GIB = 0.1  # six segments of the write-ahead log
MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    migrate = actions.add_parser("migrate", help="bring the schema to what this gpuwright needs, or to --to")
    migrate.add_argument(
        "--to", metavar="VERSION", default="head", help="a version, `head`, or `base` for an empty database"
    )
    migrate.add_argument(
        "--drop-data", action="store_true", help="accept the loss of what the older schema has no place for"
    )
    actions.add_parser("check", help="check the database's settings and abilities; exit 1 if something is wrong")
    backup = actions.add_parser("backup", help="write everything to one file, while the server runs")
    completes(backup.add_argument("file", metavar="FILE", type=Path), "files")
    restore = actions.add_parser("restore", help="fill an empty database from such a file")
    completes(restore.add_argument("file", metavar="FILE", type=Path), "files")
    leap = actions.add_parser(
        "leap", help="after Postgres was brought back to a moment: invalidate what was issued since"
    )
    token = actions.add_parser("token", help="make an admin token: the first of a database, or when all were lost")
    completes(token.add_argument("--out", metavar="FILE", type=Path, required=True, help="write to this file"), "files")
    for action in (migrate, backup, restore, leap, token, actions.choices["check"], *readers.add_actions(actions)):
        completes(
            action.add_argument(
                "--data-dir", metavar="DIR", type=Path, help="default ./.gpuwright, unless DATABASE_URL is set"
            ),
            "files",
        )


def run(args: argparse.Namespace) -> int:
    from psycopg import OperationalError as DriverError
    from sqlalchemy.exc import OperationalError

    from app.settings import SettingsError
    from app.store.backup import BackupError
    from app.store.database.schema import SchemaError

    verbs = {
        "migrate": _migrate, "check": _check, "backup": _backup, "restore": _restore, "leap": _leap, "token": _mint,
        "grant-report": readers.run, "revoke-report": readers.run, "readers": readers.run,
        "carbon": readers.run,
    }  # fmt: skip
    try:
        with database_url(args.data_dir, create=args.action in ("migrate", "restore")) as url:
            return verbs[args.action](args, url)
    except SchemaError as error:
        raise Failed(str(error), exits.REFUSED) from error
    except (BackupError, SettingsError) as error:
        raise Failed(str(error)) from error
    except (OperationalError, DriverError) as error:
        raise Failed(f"the database cannot be reached: {cause_of(error)}", exits.UNREACHABLE) from error


@contextlib.contextmanager
def database_url(data_dir: Path | None, *, create: bool) -> Iterator[str]:
    """Yields the URL of the Postgres that runs on the folder, or runs there while the block lasts; else DATABASE_URL.

    A folder that was named wins: what was typed now is meant, not what the shell has held since yesterday.
    """
    from app.embedded import EmbeddedPostgres
    from app.postgres.admission import url_of_running
    from app.postgres.faults import PostgresError
    from app.postgres.lock import FolderInUseError

    folder = _folder(data_dir)
    if folder is None:
        yield os.environ["DATABASE_URL"]
        return
    if not create and not (folder / "postgres").exists():
        raise Failed(f"there is no database in {folder}; name another folder with --data-dir, or set DATABASE_URL")
    server = EmbeddedPostgres(folder)
    try:
        url = server.start()
    except FolderInUseError:
        running = url_of_running(folder)
        if running is None:
            raise
        yield running
        return
    except (PostgresError, OSError) as error:
        raise Failed(str(error)) from error
    try:
        yield url
    finally:
        server.stop()


def _migrate(args: argparse.Namespace, url: str) -> int:
    from app.store.database import schema

    passed = schema.migrate(url, args.to, back=args.drop_data)
    target = schema.KNOWN if args.to == "head" else args.to
    print(f"schema {target}: " + (f"migrated through {', '.join(passed)}" if passed else "already there"))
    return exits.OK


def _check(args: argparse.Namespace, url: str) -> int:
    from app.store.database.inspection import inspect
    from cli.output import OutputTable

    findings = inspect(url, os.environ.get("DATABASE_LISTEN_URL", ""))
    if folder := _folder(args.data_dir):
        findings.append(check_disk(folder))
    table = OutputTable(["WHAT", "FOUND", "VERDICT", "ADVICE"])
    table.rows([[found.name, found.value, MARKS[found.verdict], found.advice] for found in findings])
    return exits.NO if any(finding.verdict == "wrong" for finding in findings) else exits.OK


def _folder(data_dir: Path | None) -> Path | None:
    """Returns the data folder; None if the database is that of DATABASE_URL."""
    if data_dir is None and os.environ.get("DATABASE_URL"):
        return None
    return (data_dir or Path(".gpuwright")).expanduser().resolve()


def check_disk(folder: Path, least_gib: float = LEAST_FREE_GIB) -> DatabaseFinding:
    """Returns the free space of a data folder's disk; too little is wrong, as writes are refused once it is full."""
    from app.store.database.inspection import DatabaseFinding

    usage = shutil.disk_usage(folder)
    free, total = usage.free / 2**30, usage.total / 2**30
    value = f"{free:.1f} of {total:.1f} GiB are free"
    if free >= least_gib:
        return DatabaseFinding("disk", value)
    return DatabaseFinding("disk", value, "wrong", f"writes are refused once it is full; free some space at {folder}")


def _backup(args: argparse.Namespace, url: str) -> int:
    from app.store.backup import take

    contents = take(url, args.file)
    size = args.file.stat().st_size
    held = f"{contents.rows} rows of {len(contents.tables)} tables, schema {contents.schema}"
    print(f"{args.file}: {held}, {size} bytes")
    return exits.OK


def _restore(args: argparse.Namespace, url: str) -> int:
    from app.store.backup import restore
    from app.store.database import schema

    if not args.file.is_file():
        raise Failed(f"the file {args.file} does not exist")
    if schema.migrate(url):
        print(f"made schema {schema.KNOWN}")
    contents = restore(url, args.file)
    held = f"{contents.rows} rows of {len(contents.tables)} tables"
    print(f"{args.file}: {held} restored, as of {contents.taken_at}")
    return exits.OK


def _leap(args: argparse.Namespace, url: str) -> int:
    from app.store.backup import leap

    lease = leap(url)
    begins = f"the next leader's epoch is over {lease.epoch}" if lease else "no planner has led here yet"
    print(f"{begins}; every watch lists again")
    return exits.OK


def _mint(args: argparse.Namespace, url: str) -> int:
    """Makes an admin token; write access to the database suffices, and the label names the origin."""
    from app.store.database import schema
    from app.store.database.database import Database

    database = Database(url, pool_size=1)
    try:
        database.read(schema.require)
        new = made(database, args.out, DATABASE_LABEL)
    finally:
        database.close()
    print(f"admin token {new.id} written to {args.out}")
    return exits.OK
