"""A backup of our own: one consistent moment of every table in one file, whichever Postgres wrote or reads it.

Not pg_dump: that must be as new as the server, and the one at hand may be older. The file is a tar.gz of
`header.json` (schema version, tables), `data/TABLE.N` (COPY text, in pieces) and `manifest.json` (rows, sha256).
"""

from app.store.backup.archive import ArchivedTable, BackupError, Contents
from app.store.backup.restoring import leap, restore
from app.store.backup.taking import take

__all__ = ["ArchivedTable", "BackupError", "Contents", "leap", "restore", "take"]
