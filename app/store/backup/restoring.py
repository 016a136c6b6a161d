"""Restores a backup in one transaction into a migrated, empty database, checked against the file's own sums."""

from __future__ import annotations

import gzip
import hashlib
import tarfile
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

from psycopg import Copy, sql
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from app.manifests.model import Free
from app.store.backup.archive import (
    DAMAGE,
    FORMAT,
    PIECE_BYTES,
    ArchivedTable,
    BackupError,
    Contents,
    Pieces,
    first_json,
)
from app.store.backup.tables import NO_LIMITS, SEEDED, SEQUENCES, TABLES, identifiers, quote_name, raw_cursor
from app.store.database import lease, partitions, schema, versions
from app.store.database.database import statement
from app.store.database.urls import sqlalchemy_url
from app.store.fleet import assignments


def restore(url: str, file: Path) -> Contents:
    """Fills a migrated, empty database from `file`: completely or not at all."""
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"prepare_threshold": None})
    try:
        with gzip.open(file) as packed, tarfile.open(fileobj=packed, mode="r|") as archive:
            with engine.begin() as connection:
                contents = _read(connection, archive, file)
                while packed.read(PIECE_BYTES):  # to the end, where gzip's checksum is
                    pass
            return contents
    except FileNotFoundError as error:
        raise BackupError(f"there is no file {file}") from error
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:200]
        raise BackupError(f"{file} is damaged or is not a gpuwright backup ({reason}); nothing was restored") from error
    except OSError as error:
        raise BackupError(f"cannot read {file}: {error.strerror or error}; nothing was restored") from error
    finally:
        engine.dispose()


def leap(url: str) -> lease.Lease | None:
    """Leaps as after our own restore, once Postgres itself was restored to a moment; returns the last lease."""
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"prepare_threshold": None})
    try:
        with engine.begin() as connection:
            schema.take_turn(connection)
            schema.require_own(connection)
            _leap(connection)
            return lease.current(connection)
    finally:
        engine.dispose()


def _leap(connection: Connection) -> None:
    """Advances all numbers past those that nodes and clients received in the time that was lost."""
    versions.leap(connection)
    lease.leap(connection)
    assignments.leap(connection)


def _read(connection: Connection, archive: tarfile.TarFile, file: Path) -> Contents:
    header = first_json(archive, "header.json")
    if header["format"] != FORMAT or header["schema"] != schema.KNOWN:
        raise BackupError(
            f"{file} has schema {header['schema']} (format {header['format']}), and this gpuwright speaks schema "
            f"{schema.KNOWN} (format {FORMAT}); restore it with the gpuwright that took it, then run: {schema.COMMAND}"
        )
    connection.execute(NO_LIMITS)
    schema.take_turn(connection)
    schema.require_own(connection)
    tables = {row.relname: list(row.columns) for row in connection.execute(TABLES)}
    if tables != header["tables"]:
        raise BackupError(f"{file} has other tables or columns than schema {schema.KNOWN} has")
    _refuse_filled(connection, list(tables))
    connection.execute(statement("clear_seeds", f"DELETE FROM {SEEDED}"))
    partitions.ensure(connection, [datetime.fromisoformat(day).replace(tzinfo=UTC) for day in header["days"]])
    contents = Contents(header["schema"], header["takenAt"])
    pieces = Pieces(archive)
    for name, columns in tables.items():
        contents.tables[name] = _copy_in(connection, name, columns, pieces.of(name))
    manifest = pieces.manifest()
    found = {name: {"rows": table.rows, "sha256": table.sha256} for name, table in contents.tables.items()}
    if manifest["tables"] != found:
        wrong = sorted(name for name in found if manifest["tables"].get(name) != found[name])
        raise BackupError(f"{file} is damaged: {', '.join(wrong)} differ from its manifest; nothing was restored")
    _set_sequences(connection, manifest["sequences"])
    _leap(connection)
    return contents


def _refuse_filled(connection: Connection, tables: list[str]) -> None:
    for name in tables:
        rows = connection.scalar(statement("is_filled", f"SELECT EXISTS (SELECT FROM {quote_name(connection, name)})"))
        if rows and name != SEEDED:
            raise BackupError(
                f"the database is not empty: table {name} has rows; restore into a new one "
                "(for `gpuwright up`: a new --data-dir)"
            )


def _copy_in(connection: Connection, table: str, columns: list[str], pieces: Iterator[bytes]) -> ArchivedTable:
    query = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), identifiers(columns))
    digest = hashlib.sha256()
    result = ArchivedTable()
    with raw_cursor(connection) as cursor:
        copy: Copy
        with cursor.copy(query) as copy:
            for piece in pieces:
                digest.update(piece)
                result.bytes += len(piece)
                copy.write(piece)
        result.rows = cursor.rowcount
    result.sha256 = digest.hexdigest()
    return result


def _set_sequences(connection: Connection, sequences: Mapping[str, Free]) -> None:
    ours = set(connection.execute(SEQUENCES).scalars())
    for name in sorted(ours & sequences.keys()):
        value, called = int(sequences[name]["lastValue"]), bool(sequences[name]["isCalled"])
        query = statement("set_sequence", "SELECT setval(CAST(:name AS regclass), :value, :called)")
        connection.execute(query, {"name": quote_name(connection, name), "value": value, "called": called})
