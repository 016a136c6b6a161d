"""The database of `gpuwright up`, with the admin's token and a link into the console."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cli import exits
from cli.admin import made
from cli.exits import Failed
from cli.serving import cause_of
from cli.up.children import Say

if TYPE_CHECKING:
    from app.settings import Settings

ADMIN_LABEL = "gpuwright up"


@contextlib.contextmanager
def own_database(data_dir: Path, settings: Settings, say: Say) -> Iterator[str]:
    """Yields the URL of DATABASE_URL, or of our own Postgres while the block lasts."""
    from app.embedded import EmbeddedPostgres
    from app.postgres.faults import PostgresError
    from app.postgres.lock import FolderLock

    try:
        if settings.database_url:
            data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = FolderLock(data_dir)
            try:
                yield settings.database_url
            finally:
                lock.release()
        else:
            with EmbeddedPostgres(data_dir, say=say) as server:
                yield server.url
    except (PostgresError, OSError) as error:
        raise Failed(str(error)) from error


def connects_directly(settings: Settings) -> bool:
    """Returns whether to connect without a pooler, as to the embedded Postgres."""
    return settings.database_direct or not settings.database_url


def migrate(url: str) -> None:
    """Brings the database to the present schema."""
    from sqlalchemy.exc import OperationalError

    from app.store.database import schema

    try:
        schema.migrate(url)
    except schema.SchemaError as error:
        raise Failed(str(error), exits.REFUSED) from error
    except OperationalError as error:
        raise Failed(f"the database cannot be reached: {cause_of(error)}", exits.UNREACHABLE) from error


def admin_token(data_dir: Path, settings: Settings) -> str:
    """Returns the admin token if it was made just now, else nothing: it is shown once."""
    from app import tokens
    from app.store.access import tokens as rows
    from app.store.database.database import Database

    path = data_dir / "admin.token"
    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    try:
        text = path.read_text().strip() if path.exists() else ""
        known = tokens.parse(text)
        row = database.read(lambda connection: rows.find_live(connection, known[0])) if known else None
        if row is not None and known and row.secret_hash == tokens.hash_secret(known[1]):
            return ""
        return made(database, path, ADMIN_LABEL).text
    finally:
        database.close()


def console_link(data_dir: Path, settings: Settings) -> str:
    """Returns a one-time link for the holder of admin.token; nothing where that is not ours to use."""
    from app import sessions, tokens
    from app.store.database.database import Database

    known = tokens.parse((data_dir / "admin.token").read_text().strip())
    database = Database(settings.database_url, pool_size=1, direct=settings.database_direct)
    try:
        return sessions.link_for(database, known[0]) if known else ""
    finally:
        database.close()
