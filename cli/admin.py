"""Admin tokens, made by anyone who can write into the database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cli.exits import Failed
from cli.talk.contexts import reason

if TYPE_CHECKING:
    from app.store.database.database import Database
    from app.tokens import NewToken


def made(database: Database, path: Path, label: str) -> NewToken:
    """Makes an admin token and writes it to this file; the label names its origin.

    The file is written first: after a death in between its token is unknown, and the next one takes its place.
    """
    from app import tokens
    from app.postgres.admission import write_privately
    from app.store.access import tokens as rows

    new = tokens.new()
    try:
        write_privately(path, new.text + "\n")
    except OSError as error:
        raise Failed(f"cannot write {path}: {reason(error)}; no token was created") from None
    database.write(
        lambda connection: rows.insert(
            connection,
            rows.TokenDraft(
                id=new.id,
                secret_hash=new.secret_hash,
                scope="admin",
                label=label,
                created_by=label,
            ),
        )
    )
    return new
