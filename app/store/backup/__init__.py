"""Backup files: one consistent moment of every table in one file, for any version of Postgres.

Not pg_dump and pg_restore: they must be as new as the server, the image of the server has neither, their archive has no
checksums, pg_restore 18 stops on Postgres 15 (SET transaction_timeout), and it cannot leap in its own transaction.

The file is a tar.gz of `header.json` (schema version, tables), `data/TABLE.N` (COPY text, in pieces) and
`manifest.json` (rows, sha256).
"""

from app.store.backup.archive import ArchivedTable, BackupError, Contents
from app.store.backup.restoring import leap, restore
from app.store.backup.taking import take

__all__ = ["ArchivedTable", "BackupError", "Contents", "leap", "restore", "take"]
