"""Takes a backup: one snapshot, table after table, into a file that appears when it is complete."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from psycopg import sql
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from app.store.backup.archive import FORMAT, PIECE_BYTES, ArchivedTable, BackupError, Contents, add
from app.store.backup.tables import NO_LIMITS, SEQUENCES, TABLES, identifiers, quote_name, raw_cursor
from app.store.database import partitions, schema
from app.store.database.database import statement
from app.store.database.urls import sqlalchemy_url


def take(url: str, file: Path) -> Contents:
    """Writes everything committed at one moment to `file`, which appears when it is complete and on disk."""
    partial = file.with_name(file.name + ".partial")
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"prepare_threshold": None})
    try:
        # A new file: one that is there already may be a link, or readable by others.
        partial.unlink(missing_ok=True)
        handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as out:
            snapshot = engine.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
            with closing(snapshot), snapshot.begin():
                contents = _write(snapshot, out)
            out.flush()
            os.fsync(out.fileno())
        partial.replace(file)
    except OSError as error:
        raise BackupError(f"cannot write {file}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
        engine.dispose()
    return contents


def _write(connection: Connection, out: io.BufferedWriter) -> Contents:
    connection.execute(NO_LIMITS)
    schema.require_own(connection)
    tables = {row.relname: list(row.columns) for row in connection.execute(TABLES)}
    contents = Contents(schema.KNOWN, datetime.now(UTC).isoformat(timespec="seconds"))
    header = {
        "format": FORMAT,
        "schema": contents.schema,
        "takenAt": contents.taken_at,
        "tables": tables,
        "days": partitions.partition_days(connection),
    }
    sequences = {name: _sequence_state(connection, name) for name in connection.execute(SEQUENCES).scalars()}
    with (
        gzip.GzipFile("", "wb", 3, out) as packed,
        tarfile.open(fileobj=packed, mode="w|") as archive,
    ):
        add(archive, "header.json", json.dumps(header).encode())
        for name, columns in tables.items():
            contents.tables[name] = ArchivedTable()
            digest = hashlib.sha256()
            for number, piece in enumerate(_copy_out(connection, name, columns)):
                digest.update(piece)
                contents.tables[name].bytes += len(piece)
                # COPY text escapes newlines in values, so each newline ends a row.
                contents.tables[name].rows += piece.count(b"\n")
                add(archive, f"data/{name}.{number}", piece)
            contents.tables[name].sha256 = digest.hexdigest()
        manifest = {
            "tables": {name: {"rows": table.rows, "sha256": table.sha256} for name, table in contents.tables.items()},
            "sequences": sequences,
        }
        add(archive, "manifest.json", json.dumps(manifest).encode())
    return contents


def _copy_out(connection: Connection, table: str, columns: list[str]) -> Iterator[bytes]:
    """Yields the rows as COPY text, in pieces of whole rows."""
    query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(identifiers(columns), sql.Identifier(table))
    held: list[bytes] = []
    size = 0
    with raw_cursor(connection) as cursor, cursor.copy(query) as copy:
        for block in copy:
            held.append(bytes(block))
            size += len(block)
            if size >= PIECE_BYTES:
                yield b"".join(held)
                held, size = [], 0
    if held:
        yield b"".join(held)


def _sequence_state(connection: Connection, sequence: str) -> dict[str, object]:
    query = f"SELECT last_value, is_called FROM {quote_name(connection, sequence)}"
    row = connection.execute(statement("sequence_standing", query)).one()
    return {"lastValue": row.last_value, "isCalled": row.is_called}
