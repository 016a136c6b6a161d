"""Creates the database's passwords, once, as files in volumes: one for Postgres, one for its clients.

Usage: python -m simulation.testbed.keys
"""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

POSTGRES = Path("/keys/postgres/password")
CLIENTS = Path("/keys/database/pgpass")


def main() -> int:
    if not POSTGRES.exists():
        write_file(POSTGRES, secrets.token_urlsafe(32), 0o444)  # Postgres runs as another user and has its own volume
    write_file(CLIENTS, f"postgres:5432:*:gpuwright:{POSTGRES.read_text().strip()}", 0o600)
    return 0


def write_file(path: Path, text: str, mode: int) -> None:
    """Writes the file atomically."""
    draft = path.with_suffix(".new")
    draft.unlink(missing_ok=True)
    draft.touch(mode=0o600)
    draft.write_text(text + "\n")
    draft.chmod(mode)
    draft.rename(path)


if __name__ == "__main__":
    sys.exit(main())
