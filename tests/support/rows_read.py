"""Counts the rows that statements read, as EXPLAIN ANALYZE reports them: no clock, and the same on every machine."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

from app.store.database.database import Database


class RowsRead:
    """The rows read so far, by statement, and how often each statement ran."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.runs: Counter[str] = Counter()
        self.whole_tables: set[tuple[str, str]] = set()  # (statement, table) of sequential scans
        self._explaining = False

    @property
    def total(self) -> int:
        return self.rows.total()

    def look(self, _conn: Connection, cursor: Any, sql: str, parameters: Any, context: Any, _many: bool) -> None:
        name = context.execution_options.get("statement", sql)
        if "SELECT" not in sql or "set_config" in sql:
            return
        self.runs[name] += 1
        beside = cursor.connection.cursor()
        beside.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}", parameters)
        (found,) = beside.fetchone()
        for node in _nodes((json.loads(found) if isinstance(found, str) else found)[0]["Plan"]):
            if "Relation Name" not in node:
                continue
            removed = node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0)
            self.rows[name] += round((node["Actual Rows"] + removed) * node["Actual Loops"])
            if node["Node Type"] == "Seq Scan":
                self.whole_tables.add((name, node["Relation Name"]))


@contextmanager
def rows_read(database: Database) -> Iterator[RowsRead]:
    """Explains each SELECT just before it runs, so that every statement runs twice."""
    found = RowsRead()
    event.listen(database.engine, "before_cursor_execute", found.look)
    try:
        yield found
    finally:
        event.remove(database.engine, "before_cursor_execute", found.look)


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)
