"""Notes which statements this process has run, so that what follows them reads only when there is something new.

In a simulation nobody else writes. A real node or gateway waits for a notification of the same news.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from sqlalchemy import Connection, event

from app.store.database.database import Database

ASSIGNMENTS = ("write_assignments",)
LIMITS = ("limit_traffic",)
OBJECTS = ("insert_changes",)  # declared, changed or deleted


class WrittenStatements:
    """How often each statement has run on a database."""

    def __init__(self, database: Database) -> None:
        self._runs: Counter[str] = Counter()
        event.listen(database.engine, "after_cursor_execute", self._note)

    def count(self, *names: str) -> int:
        """Returns how often these have run: a number that is another one after news."""
        return sum(self._runs[name] for name in names)

    def _note(self, _conn: Connection, _cur: Any, _sql: str, _values: Any, context: Any, _many: bool) -> None:
        self._runs[context.execution_options.get("statement", "")] += 1
