"""Backup files: one consistent moment of every table in one file, for any version of Postgres.

Not pg_dump and pg_restore: nothing brings those of the server's version to where gpuwright runs. The image has none.
The wheel has 18's: its pg_restore stops on Postgres 15 (SET transaction_timeout), whose own cannot read an archive of
18's pg_dump. Neither leaps in its own transaction.

The file is a tar.gz of `header.json` (schema version, tables), `data/TABLE.N` (COPY text, in pieces) and
`manifest.json` (rows, sha256).
"""

from app.store.backup.archive import ArchivedTable, BackupError, Contents
from app.store.backup.restoring import leap, restore
from app.store.backup.taking import take

__all__ = ["ArchivedTable", "BackupError", "Contents", "leap", "restore", "take"]
